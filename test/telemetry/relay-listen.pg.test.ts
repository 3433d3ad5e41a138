/**
 * `waybill relay --listen --log-json`: a relay in a container, watched from outside.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { startChild } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { outboxFixture } from '../setup/outbox-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-listen-'))
afterAll(() => rm(folder, { recursive: true }))

const main = new URL('../../src/cli/main.ts', import.meta.url)
const config = `
const confirmed = { status: 'confirmed', messageId: 'm' }
const publish = async (messages) => messages.map(({ attributes }) =>
  attributes.aggregate_id === 'bad' ? { status: 'rejected', error: new Error('canary-payload') } : confirmed)
const transport = { name: 'fake', maxBytes: 1_000_000, publish, close: async () => {} }
export default { service: 'test', transport: () => transport, relay: { maxAttempts: 1 } }
`

test('it serves metrics and health, and logs ids but not what errors say', async () => {
  const { outbox, publish } = await outboxFixture(db)
  await writeFile(join(folder, 'waybill.config.ts'), config)
  await publish('good', 'one', 'two')
  await publish('bad', 'three')
  const args = ['relay', '--config', join(folder, 'waybill.config.ts'), '--schema', outbox.tables.schema]
  await using child = startChild(main, {
    args: [...args, '--listen', '127.0.0.1:0', '--log-json'],
    env: { DATABASE_URL: database.url },
  })
  const url = await eventually(() => /metrics and health: (\S+)/.exec(child.stderr)?.[1] ?? false)
  await eventually(async () => {
    const text = await (await fetch(`${url}/metrics`)).text()
    expect(text).toContain('waybill_relay_published_total 2\n')
    expect(text).toContain('waybill_relay_parked_total 1\n')
  })
  expect((await fetch(`${url}/livez`)).status).toBe(200)
  await eventually(async () => expect((await fetch(`${url}/readyz`)).status).toBe(200))
  const entries = child.stderr
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Record<string, unknown>)
  expect(entries.find(({ signal }) => signal === 'relay.parked')).toMatchObject({
    severity: 'ERROR',
    aggregate_type: 'video',
    aggregate_id: 'bad',
    event_id: expect.stringMatching(/^[0-9a-f-]{36}$/) as string,
  })
  expect(child.stderr).not.toContain('canary-payload')
  expect(await child.kill('SIGTERM')).toEqual({ code: 0, signal: null })
})

test('an address that cannot be one is refused before anything is touched', async () => {
  await writeFile(join(folder, 'waybill.config.ts'), config)
  const args = ['relay', '--config', join(folder, 'waybill.config.ts'), '--listen', 'nonsense']
  await using child = startChild(main, { args, env: { DATABASE_URL: 'postgres://127.0.0.1:1/nowhere' } })
  expect((await child.exited).code).toBe(2)
  expect(child.stderr).toContain('--listen needs a port')
})
