/**
 * `waybill relay` as an operator runs it: a process of its own, with a configuration file, told to stop by SIGTERM.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { startChild } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { accounts, outboxFixture } from '../setup/outbox-fixture.ts'
import { runLine } from '../setup/run-line.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-relay-'))
afterAll(() => rm(folder, { recursive: true }))

const main = new URL('../../src/cli/main.ts', import.meta.url)
const signalAgain = new URL('../fixtures/signal-again.ts', import.meta.url).href
const file = join(folder, 'published.txt')

/** A broker that takes its time and writes down what it has. */
const config = `
import { appendFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
const transport = {
  name: 'file',
  maxBytes: 1_000_000,
  async publish(messages) {
    await delay(200)
    await appendFile(${JSON.stringify(file)}, messages.map(({ attributes }) => attributes.aggregate_id + ' ' + attributes.version + '\\n').join(''))
    return messages.map(() => ({ status: 'confirmed', messageId: 'm' }))
  },
  async close() {
    await appendFile(${JSON.stringify(file)}, 'closed\\n')
  },
}
export default { service: 'test', transport: () => transport, relay: { batchSize: 20, drainSize: 20 }, retention: { eventsMs: 0, idleMs: 10 } }
`

/** The signal comes while its first batch is in hand: however long anybody sleeps, the others are not. */
const interrupted = config.replace('await delay(200)', `told ||= process.kill(process.pid, 'SIGTERM')\n    await delay(200)`)

test('on SIGTERM it finishes what is in hand, gives its lanes back and exits with 0', async () => {
  const { outbox, fill, dispatch } = await outboxFixture(db)
  await writeFile(join(folder, 'interrupted.config.ts'), `let told = false\n${interrupted}`)
  await writeFile(file, '')
  await fill(['a', 'b', 'c', 'd', 'e'], 100)
  await using child = startChild(main, {
    args: ['relay', '--config', join(folder, 'interrupted.config.ts'), '--schema', outbox.tables.schema],
    env: { DATABASE_URL: database.url },
  })
  expect(await child.exited).toEqual({ code: 0, signal: null })

  const lines = (await readFile(file, 'utf8')).trim().split('\n')
  expect(lines.pop()).toBe('closed')
  // Nothing was sent that was not also marked, and nothing was sent twice.
  expect(lines.length).toBe(500 - (await dispatch()).length)
  expect(new Set(lines).size).toBe(lines.length)
  expect(lines.length).toBeGreaterThan(0)
  expect(lines.length).toBeLessThan(500)
  expect(await child.line(/^Published/)).toBe(`Published ${lines.length} events.`)
  const held = await db.query(`select from ${outbox.tables.schema}.outbox_lane where lock_token is not null`)
  const relays = await db.query(`select from ${outbox.tables.schema}.outbox_relay`)
  expect({ held: held.rowCount, relays: relays.rowCount }).toEqual({ held: 0, relays: 0 })
  const events = await db.query(`select from ${outbox.tables.schema}.outbox`)
  expect(events.rowCount).toBeGreaterThanOrEqual(500 - lines.length)
})

test('a Ctrl-C that comes twice, from the terminal and from npm, stops it in order', async () => {
  const { outbox } = await outboxFixture(db)
  await writeFile(join(folder, 'waybill.config.ts'), config)
  await using child = startChild(main, {
    args: ['relay', '--config', join(folder, 'waybill.config.ts'), '--schema', outbox.tables.schema],
    env: { DATABASE_URL: database.url, NODE_OPTIONS: `--import=${signalAgain}` },
  })
  await eventually(() => child.stderr.includes('publishes the outbox'))
  expect(await child.kill('SIGINT')).toEqual({ code: 0, signal: null })
  expect(await child.line(/^Published/)).toBe('Published 0 events.')
})

test('a topic that is missing is named while it runs', async () => {
  const { outbox, publish } = await outboxFixture(db)
  const missing = config.replace(
    `{ status: 'confirmed', messageId: 'm' }`,
    `{ status: 'unroutable', error: new Error('no topic video.events') }`,
  )
  await writeFile(join(folder, 'missing.config.ts'), missing)
  await publish('v1', 'one')
  const stop = new AbortController()
  const relay = runLine(`relay --config missing.config.ts --schema ${outbox.tables.schema}`, {
    folder,
    env: { DATABASE_URL: database.url },
    signal: stop.signal,
    onErr: (text) =>
      void (text.includes('An event failed and stops its key until it is tried again. no topic video.events (') && stop.abort()),
  })
  expect(await relay).toMatchObject({ code: 0, err: expect.stringContaining('aggregate_id: v1') })
})

test('as a job it publishes what is due and removes what is old, batch after batch', async () => {
  const { outbox, fill } = await outboxFixture(db)
  const { schema } = outbox.tables
  const job = config.replace('eventsMs: 0, idleMs: 10', 'eventsMs: 0, receiptsMs: 0, batchSize: 30')
  await writeFile(join(folder, 'job.config.ts'), job)
  await fill(['a', 'b'], 50)
  const circumstances = { folder, env: { DATABASE_URL: database.url } }
  const words = `relay --once --config job.config.ts --schema ${schema}`
  expect(await runLine(words, circumstances)).toMatchObject({ code: 0, out: 'Published 100 events.\n' })
  expect((await db.query(`select from ${schema}.outbox`)).rowCount).toBe(0)
  expect((await db.query(`select from ${schema}.outbox_receipt`)).rowCount).toBe(0)
})

test('a job removes what is old though a topic is missing, and says which', async () => {
  const { outbox, publish } = await outboxFixture(db)
  const { schema } = outbox.tables
  const partly = config.replace(
    `messages.map(() => ({ status: 'confirmed', messageId: 'm' }))`,
    `messages.map(({ topic }) => topic === 'bank.events' ? { status: 'unroutable', error: new Error('no topic bank.events') } : { status: 'confirmed', messageId: 'm' })`,
  )
  await writeFile(join(folder, 'partly.config.ts'), partly)
  await publish('v', 'one', 'two')
  await transaction(db, (tx) => outbox.add(tx, accounts.Deposited, 'a', { amount: 1 }))
  const job = await runLine(`relay --once --config partly.config.ts --schema ${schema}`, {
    folder,
    env: { DATABASE_URL: database.url },
  })
  expect(job).toMatchObject({ code: 1, err: expect.stringContaining('no topic bank.events The events of such topics wait') })
  expect((await db.query(`select topic from ${schema}.outbox`)).rows).toEqual([{ topic: 'bank.events' }])
})

test('a job removes nothing from the database of another deployment', async () => {
  const { outbox, fill } = await outboxFixture(db)
  const { schema } = outbox.tables
  await writeFile(join(folder, 'publish.config.ts'), config.replace(/retention: \{.*?\}/, 'retention: false'))
  await writeFile(join(folder, 'others.config.ts'), config.replace('relay: {', `relay: { deploymentId: 'production',`))
  await fill(['a'], 5)
  const circumstances = { folder, env: { DATABASE_URL: database.url } }
  const published = await runLine(`relay --once --config publish.config.ts --schema ${schema}`, circumstances)
  expect(published).toMatchObject({ code: 0, out: 'Published 5 events.\n' })
  const refused = await runLine(`relay --once --config others.config.ts --schema ${schema}`, circumstances)
  expect(refused).toMatchObject({ code: 3, err: expect.stringContaining('this process is set to "production"') })
  expect((await db.query(`select from ${schema}.outbox`)).rowCount).toBe(5)
})

test('a job keeps everything if that is configured, and does not pretend to serve metrics', async () => {
  const { outbox, fill } = await outboxFixture(db)
  const { schema } = outbox.tables
  await writeFile(join(folder, 'keep.config.ts'), config.replace(/retention: \{.*?\}/, 'retention: false'))
  await fill(['a'], 5)
  const circumstances = { folder, env: { DATABASE_URL: database.url } }
  const words = `relay --once --config keep.config.ts --schema ${schema}`
  const refused = await runLine(`${words} --listen 127.0.0.1:0`, circumstances)
  expect(refused.code).toBe(2)
  expect(refused.err).toContain('--listen is for a relay that stays')
  expect(await runLine(words, circumstances)).toMatchObject({ code: 0, out: 'Published 5 events.\n' })
  expect((await db.query(`select from ${schema}.outbox`)).rowCount).toBe(5)
})
