import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { accounts, outboxFixture, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { selectWaiting } from '../../ops/status/outbox.sql.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { memory, type MemoryTransport } from '../../transport/memory/memory.ts'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-outbox-cli-'))
afterAll(() => rm(folder, { recursive: true }))

const cli = (line: string): Promise<Ended> => runLine(line, { folder, env: { DATABASE_URL: database.url } })

interface Case extends OutboxFixture {
  readonly broker: MemoryTransport
  run(line: string): Promise<Ended>
  json(line: string): Promise<unknown>
}

/** Version 2 of account `bad` is parked, with one behind it. */
async function parked(): Promise<Case> {
  const fixture = await outboxFixture(db)
  const broker = memory({ rejects: ({ attributes, body }) => attributes['version'] === '2' && body.byteLength > 0 })
  for (let amount = 1; amount <= 3; amount += 1)
    await transaction(db, (tx) => fixture.outbox.add(tx, accounts.Deposited, 'bad', { amount }))
  await fixture.relay(broker, { maxAttempts: 1 }).once()
  await fixture.relay(broker).once()
  const run = (line: string): Promise<Ended> => cli(`${line} --schema ${fixture.outbox.tables.schema}`)
  return { ...fixture, broker, run, json: async (line) => JSON.parse((await run(`${line} --json`)).out) as unknown }
}

test('status counts every state and names the paused', async () => {
  const { run, json } = await parked()
  await run('outbox pause --stream video --reason later')
  expect(await run('outbox status')).toMatchObject({
    code: 0,
    out: expect.stringMatching(
      /^2 events wait, the oldest for .*: 0 due, 0 to be retried, 1 held, 1 parked\nNo relay is running\.\nPaused: video, by ada at .*: later\n$/,
    ),
  })
  expect(await json('outbox status')).toMatchObject({
    dispatching: true,
    backlog: { parked: 1, held: 1 },
    relays: [],
    pauses: [{ aggregateType: 'video', reason: 'later' }],
  })
})

test('list shows what waits, and the history of one aggregate or event', async () => {
  const { run, json } = await parked()
  expect(await json('outbox list')).toMatchObject([
    { state: 'PARKED', version: '2', attempts: 1 },
    { state: 'HELD', version: '3' },
  ])
  expect(await json('outbox list --state parked --stream account')).toHaveLength(1)
  expect(await json('outbox list --stream video')).toEqual([])
  const history = (await json('outbox list --stream account --aggregate bad')) as { eventId: string; state: string }[]
  expect(history.map(({ state }) => state)).toEqual(['HELD', 'PARKED', 'PUBLISHED'])
  expect(await json(`outbox list --event ${history[2]?.eventId}`)).toMatchObject([
    { version: '1', messageId: expect.any(String) },
  ])
  expect((await run('outbox list --state parked')).out).toMatch(
    /^STATE +EVENT .*\nPARKED .* account +bad +2 +Deposited +1 .*refuses this message/,
  )
})

interface PlanNode {
  readonly 'Relation Name'?: string
  readonly 'Actual Rows': number
  readonly 'Actual Loops': number
  readonly 'Rows Removed by Filter'?: number
  readonly Plans?: readonly PlanNode[]
}

/** How many rows of the outbox and its dispatch a plan has read. */
function rowsRead(node: PlanNode): number {
  const {
    'Relation Name': relation = '',
    'Actual Rows': found,
    'Actual Loops': loops,
    'Rows Removed by Filter': removed = 0,
  } = node
  const own = relation.startsWith('outbox') && relation !== 'outbox_lane' ? (found + removed) * loops : 0
  return (node.Plans ?? []).reduce((sum, each) => sum + rowsRead(each), own)
}

test.each([
  { what: 'all', state: undefined, aggregateType: undefined, shown: 10 },
  { what: 'one state', state: 'PENDING', aggregateType: undefined, shown: 10 },
  { what: 'one stream', state: 'PENDING', aggregateType: 'video', shown: 10 },
  { what: 'what is parked', state: 'PARKED', aggregateType: undefined, shown: 1 },
] as const)('a list of $what reads little more than it shows of all that waits', async (filter) => {
  const { outbox, fill } = await parked()
  const { schema, dispatch } = outbox.tables
  await fill(['a', 'b', 'c', 'd'], 1_000)
  await db.query(`analyze ${dispatch.quoted}; analyze ${schema}.outbox_lane; analyze ${schema}.outbox`)
  const { text, values } = selectWaiting(outbox.tables, { ...filter, limit: 10 })
  expect((await db.query(text, values)).rows).toHaveLength(filter.shown)
  const { rows } = await db.query(`explain (analyze, format json) ${text}`, values)
  const [{ Plan: plan }] = (rows as { 'QUERY PLAN': [{ Plan: PlanNode }] }[])[0]?.['QUERY PLAN'] ?? [{ Plan: undefined }]
  expect(plan === undefined ? Number.NaN : rowsRead(plan)).toBeLessThanOrEqual(filter.shown * 10)
})

test.each([
  ['outbox list --aggregate bad', 'the type is missing'],
  ['outbox list --state lost', '--state is one of pending, inflight'],
  ['outbox list --state published', 'name its type and its id'],
  ['outbox list --limit many', '--limit needs a whole number'],
  ['outbox redrive', 'Which parked events?'],
  ['outbox skip --all --stream account', 'Which parked events?'],
  ['outbox drop --stream= --yes', '--stream is empty'],
  ['outbox pause', 'Which stream?'],
  ['outbox pause --all --stream video', 'or --all alone'],
  ['outbox resume --all --aggregate v1', 'or --all alone'],
  ['outbox cdc on', 'Which replication slot?'],
])('%s is a mistake', async (line, message) => {
  await migrate(db, { schema: 'mistakes', service: 'test' })
  expect(await cli(`${line} --schema mistakes`)).toMatchObject({ code: 2, out: '', err: expect.stringContaining(message) })
})

describe('parked events', () => {
  test('are redriven, once', async () => {
    const { run, states } = await parked()
    expect(await run('outbox redrive --stream account --aggregate bad --reason fixed')).toMatchObject({
      code: 0,
      out: 'Due again: 1 event.\n',
    })
    expect(await states()).toMatchObject({ 'bad 2': 'RELEASED', 'bad 3': 'HELD' })
    expect(await run('outbox redrive --all')).toMatchObject({ code: 4, out: 'No parked event fits.\n' })
  })

  test('are skipped by an empty marker, with --yes only', async () => {
    const { run, relay, broker, states } = await parked()
    const explained = await run('outbox skip --error refuses')
    expect(explained).toMatchObject({
      code: 3,
      err: expect.stringContaining('its effect never happens. To skip, run the same with --yes.'),
    })
    expect(explained.out).toMatch(/^would skip .* account bad version 2: .*\n$/)
    expect(await states()).toMatchObject({ 'bad 2': 'PARKED', 'bad 3': 'HELD' })
    expect(await run('outbox skip --error refuses --yes')).toMatchObject({ code: 0, out: 'Skipped: 1 event.\n' })
    await relay(broker).once()
    expect(await states()).toEqual({ 'bad 1': 'PUBLISHED', 'bad 2': 'PUBLISHED', 'bad 3': 'PUBLISHED' })
  })

  test('are dropped only when no relay of the configuration can still be publishing them', async () => {
    const { run, json, outbox } = await parked()
    const parkedEarlier = (time: string): Promise<unknown> =>
      db.query(`update ${outbox.tables.schema}.outbox_dispatch set parked_at = parked_at - $1::text::interval where state = 3`, [
        time,
      ])
    await writeFile(
      join(folder, 'patient.config.ts'),
      `export default { service: 'test', relay: { publishTimeoutMs: 50_000, leaseMs: 20_000 } }`,
    )
    await parkedEarlier('60 seconds')
    const left = await run('outbox drop --all --yes --config patient.config.ts')
    expect(left).toMatchObject({ code: 4, err: expect.stringContaining('parked less than 70 s ago') })
    await parkedEarlier('10 seconds')
    expect(await json('outbox drop --all --yes --config patient.config.ts')).toMatchObject({ refused: [] })
  })

  test('are dropped with --yes only, and only when they have been quiet', async () => {
    const { run, json, states, outbox } = await parked()
    const explained = await run('outbox drop --all')
    expect(explained).toMatchObject({ code: 3, err: expect.stringContaining('--yes') })
    expect(explained.out).toMatch(/^would drop .* account bad version 2/)
    expect(await run('outbox drop --all --yes')).toMatchObject({ code: 4, err: expect.stringContaining('left alone') })
    await db.query(
      `update ${outbox.tables.schema}.outbox_dispatch set parked_at = parked_at - interval '1 minute' where state = 3`,
    )
    expect(await json('outbox drop --all --yes')).toEqual({ events: [expect.any(String)], refused: [] })
    expect(Object.keys(await states())).toEqual(['bad 1', 'bad 3'])
  })
})

test('pause and resume say what they found', async () => {
  const { run } = await parked()
  expect((await run('outbox pause --stream video --aggregate v1')).out).toBe('Paused: video v1.\n')
  expect((await run('outbox pause --stream video --aggregate v1')).out).toBe('video v1 was paused already.\n')
  expect((await run('outbox resume --stream video --aggregate v1')).out).toBe('Resumed: video v1; 0 aggregates had waited.\n')
  expect(await run('outbox resume --stream video')).toMatchObject({ code: 4, out: 'stream video was not paused.\n' })
})

test('everything is paused and goes on by one word, and whoever looks is told', async () => {
  const { run, json } = await parked()
  expect((await run('outbox pause --all --reason incident')).out).toBe('Paused: everything.\n')
  expect((await run('outbox pause --all')).out).toBe('everything was paused already.\n')
  expect((await run('outbox status')).out).toMatch(/^Paused: everything, by ada at \S+Z: incident$/m)
  expect((await run('status')).out).toMatch(/^Paused {5}everything, by ada at \S+Z: incident$/m)
  expect((await run('doctor')).out).toMatch(/^everything is paused, by ada since \S+: nothing is published\./m)
  expect(await json('outbox resume --all')).toEqual({ resumed: true, woken: 0 })
  expect(await run('outbox resume --all')).toMatchObject({ code: 4, out: 'everything was not paused.\n' })
  expect((await run('doctor')).out).not.toContain('everything is paused')
})

test('lanes are shown and their number is changed', async () => {
  const { run, json, relay, broker } = await parked()
  expect(((await json('outbox lanes')) as { lanes: unknown[] }).lanes).toHaveLength(64)
  const { lanes } = (await json('outbox lanes --change 4')) as { lanes: { parked: number }[] }
  expect(lanes).toHaveLength(4)
  expect(lanes.reduce((sum, { parked: count }) => sum + count, 0)).toBe(1)
  await run('outbox skip --all --yes')
  expect(await relay(broker).once()).toBe(2)
  expect(await run('outbox lanes --change 5')).toMatchObject({ code: 1, err: expect.stringContaining('power of two') })
})

describe('relay --once', () => {
  const memoryUrl = new URL('../../transport/memory/memory.ts', import.meta.url).href

  test('drains and says how many', async () => {
    const { run, json } = await parked()
    await run('outbox skip --all --yes')
    await writeFile(
      join(folder, 'relay.ts'),
      `import { memory } from '${memoryUrl}'\nexport default { service: 'test', transport: () => memory(), relay: { receipts: false } }`,
    )
    expect(await run('relay --once --config relay.ts')).toMatchObject({ code: 0, out: 'Published 2 events.\n', err: '' })
    expect(await json('relay --once --config relay.ts')).toEqual({ published: 0 })
  })

  test('needs to be told of a broker, and refuses the schema of another service', async () => {
    const { run } = await parked()
    expect(await run('relay --once --service test')).toMatchObject({ code: 2, err: expect.stringContaining('Which broker?') })
    expect(await run('relay --once --config relay.ts --service other')).toMatchObject({ code: 3 })
  })
})

test('doctor is 0 when nothing is wrong and 4 when something is', async () => {
  const { run } = await parked()
  // The test server does not flush to disk, so one thing is always wrong.
  expect(await run('doctor')).toMatchObject({ code: 4, out: expect.stringMatching(/fsync.* off.*\n1 events are parked/) })
  // It knows no name for the service, and makes none up.
  const missing = 'is not in this database. Run: waybill migrate up --schema nowhere --service <name of this service>'
  expect(await cli('doctor --schema nowhere')).toMatchObject({ code: 4, out: expect.stringContaining(missing) })
})
