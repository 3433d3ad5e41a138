import { afterEach, expect, test } from 'vitest'
import { depositCommand } from '../../test/command/bank.ts'
import { commandSetup, heard } from '../../test/command/command-setup.ts'
import { skewedClock, type SkewedClock } from '../../test/setup/skewed-clock.ts'
import { run } from '../core/service/lifetime.ts'
import { transaction } from '../postgres/transaction/transaction.ts'
import { createFakeClock, type FakeClock } from '../testing/kit/fake-clock.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { createMarkerCleanup } from './marker-cleanup.ts'

const { db, bank, commandsWith, newAccount, newRequest } = await commandSetup()
const never = new AbortController().signal
const hourMs = 3_600_000
const keptMs = 3_960_000

/** Markers of the given age. */
async function insertMarkers(count: number, ageMs: number, prefix = 'old'): Promise<void> {
  await db.query(
    `insert into waybill.command_marker (principal, request_id, command, fingerprint, created_at)
     select 'ann', $3 || '-' || n, 'Old', '\\x00', clock_timestamp() - $2::text::bigint * interval '1 millisecond' from generate_series(1, $1::int) n`,
    [count, String(ageMs), prefix],
  )
}

async function markers(): Promise<number> {
  return ((await db.query('select count(*)::int as n from waybill.command_marker')).rows[0] as { n: number }).n
}

test('no caller deletes a marker that is younger than the database keeps them', async () => {
  await insertMarkers(3, keptMs - 60_000)
  await insertMarkers(2, keptMs + 60_000, 'older')
  for (const keepMs of [0, 1, -keptMs, 60_000])
    await db.query('select from waybill.expire_markers($1::text::bigint, 1000)', [String(keepMs)])
  expect(await markers()).toBe(3)
  // The owner says so, and it is so.
  await db.query('update waybill.marker_retention set keep_ms = 60000')
  await createMarkerCleanup({ db, ttlMs: 60_000 }).pass(never)
  expect(await markers()).toBe(0)
  await db.query('update waybill.marker_retention set keep_ms = $1::text::bigint', [String(keptMs)])
})

test('the answer of a command is kept by the transaction that made its marker, and by no other', async () => {
  const answer = `select waybill.answer_command('ann', 'r1', false, '"forged"', null) as kept`
  const kept = await transaction(db, async (tx) => {
    await tx.query('savepoint earlier')
    await tx.query(`select from waybill.claim_command('ann', 'r1', 'Deposit', '\\x00', '{}', '{}', '1000')`)
    await tx.query('release earlier')
    return (await tx.query(answer)).rows
  })
  expect(kept).toEqual([{ kept: true }])
  expect((await db.query(answer)).rows).toEqual([{ kept: false }])
})

afterEach(async () => void (await db.query('truncate waybill.command_marker, waybill.retention_clock')))

/** A database whose clock goes on with that of the process, and steps alone. */
function clocks(): { readonly clock: FakeClock; readonly skewed: SkewedClock; readonly pass: (ms: number) => Promise<void> } {
  const [clock, skewed] = [createFakeClock(), skewedClock(db)]
  return {
    clock,
    skewed,
    pass: async (ms) => {
      skewed.step(ms)
      await clock.advance(ms)
    },
  }
}

test('a marker is honoured until its TTL and beyond, and deleted a margin later', async () => {
  const commands = commandsWith()
  const deposit = depositCommand({ store: 'response' })
  const cleanup = createMarkerCleanup({ db })
  const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 1 } }
  await commands.run(deposit, request)
  const setAge = (ageMs: number): Promise<unknown> =>
    db.query(`update waybill.command_marker set created_at = clock_timestamp() - $1::text::bigint * interval '1 millisecond'`, [
      String(ageMs),
    ])
  for (const ageMs of [hourMs - 1_000, hourMs + 1_000, keptMs - 30_000]) {
    await setAge(ageMs)
    expect(await cleanup.pass(never)).toBe('idle')
    expect(await commands.run(deposit, request)).toMatchObject({ status: 'replayed' })
  }
  await setAge(keptMs + 1_000)
  await cleanup.pass(never)
  expect(await commands.run(deposit, request)).toMatchObject({ status: 'executed' })
  expect(await bank.effects(request.requestId)).toBe(2)
})

test('a full batch asks for the next at once, and the oldest go first', async () => {
  await insertMarkers(5, 3 * hourMs, 'older')
  await insertMarkers(7, 2 * hourMs)
  await insertMarkers(3, 0, 'young')
  const cleanup = createMarkerCleanup({ db, batchSize: 5 })
  expect(await cleanup.pass(never)).toBe('more')
  const left = (await db.query(`select count(*)::int as n from waybill.command_marker where request_id like 'older%'`)).rows[0]
  expect(left).toEqual({ n: 0 })
  expect([await cleanup.pass(never), await cleanup.pass(never), await markers()]).toEqual(['more', 'idle', 3])
})

test('instances share the work and wait for nobody: a row that is locked is left for later', async () => {
  await insertMarkers(1_000, 2 * hourMs)
  const { signals, all } = heard('command.cleaned')
  const instances = Array.from({ length: 4 }, () => createMarkerCleanup({ db, signals, batchSize: 250 }))
  await transaction(db, async (tx) => {
    await tx.query(`select from waybill.command_marker where request_id = 'old-7' for update`)
    for (let round = 0; round < 3; round += 1) await Promise.all(instances.map((each) => each.pass(never)))
    expect(await markers()).toBe(1)
  })
  expect(all.reduce((sum, { deleted }) => sum + deleted, 0)).toBe(999)
  await instances[0]?.pass(never)
  expect(await markers()).toBe(0)
})

test('the lag is told, and a lag above the threshold is an alert', async () => {
  await insertMarkers(10, keptMs + 90_000)
  const cleaned = heard('command.cleaned')
  const lagging: unknown[] = []
  cleaned.signals.on('command.cleanup-lagging', (event) => void lagging.push(event))
  const cleanup = createMarkerCleanup({ db, signals: cleaned.signals, batchSize: 5 })
  await cleanup.pass(never)
  expect(cleaned.all[0]?.lagMs).toBeGreaterThanOrEqual(90_000)
  expect(cleaned.all[0]?.lagMs).toBeLessThan(150_000)
  expect(lagging).toMatchObject([{ alertLagMs: 60_000 }])
  await cleanup.pass(never)
  expect(cleaned.all[1]?.lagMs).toBe(0)
  expect(lagging).toHaveLength(1)
})

test('as a service it works at once, rests in between, goes on after a failure, and stops when told', async () => {
  await insertMarkers(12, 2 * hourMs)
  const clock = createFakeClock()
  const { signals, all } = heard('command.cleaned')
  let isBroken = false
  const sometimes: typeof db = {
    ...db,
    attempt: (...args) => (isBroken ? Promise.reject(new Error('gone')) : db.attempt(...args)),
  }
  const stop = new AbortController()
  const failures: unknown[] = []
  signals.on('service.failed', (event) => void failures.push(event))
  const running = run([createMarkerCleanup({ db: sometimes, clock, signals, batchSize: 5 })], { signal: stop.signal })
  await eventually(() => all.length === 3 && clock.sleepers() === 1)
  expect(all.map(({ deleted }) => deleted)).toEqual([5, 5, 2])
  isBroken = true
  await clock.advance(5_000)
  await eventually(() => failures.length === 1)
  isBroken = false
  await insertMarkers(1, 2 * hourMs)
  await eventually(() => clock.sleepers() === 1)
  await clock.advance(10_000)
  await eventually(async () => (await markers()) === 0)
  stop.abort()
  await running
})

test('what is old is found by the index, and what is young is not looked at', async () => {
  await insertMarkers(2_000, 0, 'young')
  await db.query('analyze waybill.command_marker')
  await transaction(db, async (tx) => {
    // Rows of the table alone: an index that is read counts for itself.
    const scanned = async (): Promise<unknown> =>
      (await tx.query(`select pg_stat_get_xact_tuples_returned('waybill.command_marker'::regclass)::int as n`)).rows
    const before = await scanned()
    await tx.query('select deleted from waybill.expire_markers($1::text::bigint, 100)', [String(keptMs)])
    expect(await scanned()).toEqual(before)
  })
})

test('a step of the database’s clock removes no marker before its TTL has passed since, and is told', async () => {
  const { clock, skewed, pass } = clocks()
  const { signals, all } = heard('retention.clock-leapt')
  const cleanup = (): ReturnType<typeof createMarkerCleanup> => createMarkerCleanup({ db: skewed.db, clock, signals })
  const running = cleanup()
  await running.pass(never)
  await insertMarkers(10, 0)
  skewed.step(48 * hourMs)
  await running.pass(never)
  // Nor does a process that starts after the step take anything for old.
  await cleanup().pass(never)
  expect(await markers()).toBe(10)
  expect(all.map(({ byMs }) => Math.round(byMs / hourMs))).toEqual([48])

  await pass(hourMs)
  await running.pass(never)
  expect(await markers()).toBe(10)
  await pass(keptMs - hourMs + 60_000)
  await running.pass(never)
  expect([await markers(), all.length]).toEqual([0, 1])
})

test('a process that starts behind a step which nobody has seen takes nothing for old', async () => {
  const { clock, skewed } = clocks()
  await createMarkerCleanup({ db: skewed.db, clock }).pass(never)
  await insertMarkers(10, 0)
  skewed.step(48 * hourMs)
  await createMarkerCleanup({ db: skewed.db, clock }).pass(never)
  expect(await markers()).toBe(10)
})

test('markers that were written after a step go when their TTL is over', async () => {
  const { clock, skewed, pass } = clocks()
  const running = createMarkerCleanup({ db: skewed.db, clock })
  await running.pass(never)
  skewed.step(48 * hourMs)
  await running.pass(never)
  await insertMarkers(5, -48 * hourMs)
  await pass(keptMs - 60_000)
  await running.pass(never)
  expect(await markers()).toBe(5)
  await pass(120_000)
  await running.pass(never)
  expect(await markers()).toBe(0)
})

test('a step that is taken back keeps no marker longer than its TTL', async () => {
  const { clock, skewed, pass } = clocks()
  const running = createMarkerCleanup({ db: skewed.db, clock })
  await running.pass(never)
  await insertMarkers(5, 0)
  skewed.step(20 * 365 * 24 * hourMs)
  await running.pass(never)
  skewed.step(-20 * 365 * 24 * hourMs)
  await running.pass(never)
  expect(await markers()).toBe(5)
  await pass(keptMs + 60_000)
  await running.pass(never)
  expect(await markers()).toBe(0)
})
