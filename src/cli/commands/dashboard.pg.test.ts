import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, inject, onTestFinished, test } from 'vitest'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { createTestDatabase } from '../../testing/servers/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'orders' })

/** Runs the line until `use`, which gets the printed address, is done. */
async function serve(line: string, use: (address: URL) => Promise<void>): Promise<Ended> {
  const stop = new AbortController()
  let said = ''
  let used: Promise<void> | undefined
  const onErr = (text: string): void => {
    said += text
    const address = /^Dashboard +(\S+)\n/m.exec(said)?.[1]
    if (address !== undefined) used ??= use(new URL(address)).finally(() => stop.abort())
  }
  const env = { DATABASE_URL: database.url }
  const ended = await runLine(line, { folder: import.meta.dirname, env, signal: stop.signal, onErr })
  await used
  return ended
}

const overviewOf = async (address: URL): Promise<unknown> => await (await fetch(new URL('api/overview', address))).json()

test('the printed address opens the page; without its key there is nothing to see', async () => {
  const told = await serve('dashboard --json', async (address) => {
    expect(address.hostname).toBe('127.0.0.1')
    for (const wrong of ['/', '/api/overview', `/${'a'.repeat(43)}/`, `/${address.pathname}`, `/x${address.pathname}`]) {
      const response = await fetch(`${address.origin}${wrong}`)
      expect({ status: response.status, text: await response.text() }).toEqual({
        status: 403,
        text: expect.stringContaining('the key is in it'),
      })
    }
    expect(await (await fetch(address)).text()).toContain('<!doctype html>')
    expect(await overviewOf(address)).toMatchObject({
      viewer: { name: 'ada', mayAct: false },
      payloads: false,
      services: [{ name: 'orders', status: { service: 'orders' } }],
    })
  })
  expect(told).toMatchObject({ code: 0, err: expect.stringContaining('It only shows') })
  expect(JSON.parse(told.out)).toEqual({ url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/) })
})

test('with --actions it acts under the name of who started it', async () => {
  const told = await serve('dashboard --actions --payloads', async (address) => {
    const response = await fetch(new URL('api/overview', address))
    const { seal, payloads } = (await response.json()) as { seal: string; payloads: boolean }
    expect(payloads).toBe(true)
    const done = await fetch(new URL('api/actions/pause-stream', address), {
      method: 'POST',
      headers: { cookie: `waybill_seal=${seal}`, 'x-waybill-seal': seal, origin: address.origin },
      body: JSON.stringify({ service: 'orders', aggregateType: 'video' }),
    })
    expect(await done.json()).toEqual({ text: 'Paused: stream video.', done: true })
  })
  expect(told).toMatchObject({ code: 0, err: expect.stringContaining('It may change things') })
  const { rows } = await db.query('select actor, action from waybill.audit_log')
  expect(rows).toEqual([{ actor: 'ada', action: 'outbox.pause' }])
})

test('what the configuration says of markers decides when they are due', async () => {
  await db.query(`insert into waybill.command_marker (created_at, principal, request_id, command, fingerprint)
    values (now() - interval '20 hours', 'ann', 'r1', 'Teach', '\\x00')`)
  onTestFinished(async () => void (await db.query('delete from waybill.command_marker')))
  const folder = await mkdtemp(join(tmpdir(), 'waybill-dashboard-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const file = join(folder, 'waybill.config.ts')
  await writeFile(file, `export default { service: 'orders', markerTtlMs: 86_400_000 }\n`)
  const findings: unknown[] = []
  for (const line of ['dashboard', `dashboard --config ${file}`]) {
    await serve(line, async (address) => {
      const { services } = (await overviewOf(address)) as { services: { findings: unknown }[] }
      findings.push(services[0]?.findings)
    })
  }
  expect(findings).toEqual([[expect.objectContaining({ problem: 'cleanup-lag' })], []])
})

test('others may be away, and two of one name are told apart', async () => {
  const twin = await createTestDatabase(inject('postgres'))
  onTestFinished(() => twin.drop())
  await migrate(fromPg(twin.pool), { schema: 'waybill', service: 'orders', deploymentId: 'orders-staging' })
  await serve(`dashboard --also ${twin.url},postgres://app:secret@127.0.0.1:1/shop`, async (address) => {
    const { services } = (await overviewOf(address)) as { services: { name: string; error?: unknown }[] }
    expect(services.map(({ name, error }) => ({ name, isAway: error !== undefined }))).toEqual([
      { name: expect.stringMatching(/^orders \([-0-9a-f]{36}\)$/), isAway: false },
      { name: 'orders (orders-staging)', isAway: false },
      { name: 'app@127.0.0.1:1/shop', isAway: true },
    ])
    expect(JSON.stringify(services)).not.toContain('secret')
  })
})

test.each([
  ['--port 99999', '--port: expected a port'],
  ['--schema nowhere', 'is not in this database'],
])('%s is refused', async (options, message) => {
  const { code, err } = await serve(`dashboard ${options}`, async () => {})
  expect({ code: code > 0, err }).toEqual({ code: true, err: expect.stringContaining(message) })
})

test('a port that is taken is named', async () => {
  await serve('dashboard', async ({ port }) => {
    const { code, err } = await serve(`dashboard --port ${port}`, async () => {})
    expect({ code, err }).toEqual({
      code: 2,
      err: `Port ${port} is taken. Choose another with --port, or leave it out for a free one.\n`,
    })
  })
})
