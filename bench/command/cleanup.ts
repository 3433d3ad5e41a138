/**
 * Whether one instance with default settings keeps up with 20,000 markers that expire each second, in a table of five million.
 *
 * The run happens once, because it takes minutes; its figures stand in every round. Markers are inserted at the moment of their
 * expiry, in bulk, so that the table neither grows nor shrinks if clean-up keeps pace. Until the first autovacuum has passed it
 * grows in any case; so its size is compared between the last third of the run and the one before.
 */
import { createMarkerCleanup } from '../../src/command/marker-cleanup.ts'
import { run } from '../../src/core/service/lifetime.ts'
import { createSignals, type Signals } from '../../src/core/signals.ts'
import { type Bench, type BenchSize, defineBench } from '../harness.ts'
import { openCommandBench, type CommandBench } from './command-bench.ts'

const perSecond = 20_000
const keepMs = 3_960_000

interface Figures {
  /** Mean lag of the last third less that of the first, after a start of ten seconds. */
  readonly lagGrowthMs: number
  readonly highestLagMs: number
  readonly deletedPerSecond: number
  readonly insertedPerSecond: number
  /** Of one busy second of a pass: how fast it could go. */
  readonly deletedPerBusySecond: number
  readonly sizeRatio: number
}

export const cleanupBench: Bench = defineBench<Figures>({
  name: 'clean-up',
  summary: 'lag and table size while 20,000 markers expire each second beside five million others',
  unit: 'ms, rows/s or a ratio, as named',
  setup: measure,
  contenders: {
    'clean-up: highest lag, ms': ({ highestLagMs }) => highestLagMs,
    'clean-up: lag growth, ms': ({ lagGrowthMs }) => lagGrowthMs,
    'clean-up: inserted, rows/s': ({ insertedPerSecond }) => insertedPerSecond,
    'clean-up: deleted, rows/s': ({ deletedPerSecond }) => deletedPerSecond,
    'clean-up: deleted, rows per busy second': ({ deletedPerBusySecond }) => deletedPerBusySecond,
    'clean-up: table size, last third ÷ second': ({ sizeRatio }) => sizeRatio,
  },
  bars: [
    { name: 'markers expired, rows/s', target: 19_000, direction: 'at-least', of: (of) => of('clean-up: inserted, rows/s') },
    { name: 'clean-up lag growth, ms', target: 1_000, direction: 'at-most', of: (of) => of('clean-up: lag growth, ms') },
    { name: 'highest clean-up lag, ms', target: 15_000, direction: 'at-most', of: (of) => of('clean-up: highest lag, ms') },
    {
      name: 'table size, last third ÷ second',
      target: 1.05,
      direction: 'at-most',
      of: (of) => of('clean-up: table size, last third ÷ second'),
    },
  ],
})

async function measure({ quick }: BenchSize): Promise<Figures> {
  const bench = await openCommandBench({ autovacuum_naptime: '15s' })
  try {
    await fill(bench, quick ? 500_000 : 5_000_000)
    return await expire(bench, quick ? 30 : 150)
  } finally {
    await bench.close()
  }
}

/** Indexes are taken away meanwhile: filling is not what is measured. */
async function fill({ db }: CommandBench, markers: number): Promise<void> {
  await db.query('alter table waybill.command_marker drop constraint command_marker_pkey')
  await db.query('drop index waybill.command_marker_created_at_idx')
  await insert(db, { from: 0, count: markers, ageMs: 0 })
  await db.query('alter table waybill.command_marker add primary key (principal, request_id)')
  await db.query('create index command_marker_created_at_idx on waybill.command_marker (created_at)')
  await db.query('vacuum (analyze) waybill.command_marker')
}

async function insert(
  db: CommandBench['db'],
  { from, count, ageMs }: { readonly from: number; readonly count: number; readonly ageMs: number },
): Promise<void> {
  await db.query(
    `insert into waybill.command_marker (principal, request_id, command, fingerprint, created_at)
     select 'user-' || (n % 100000), gen_random_uuid()::text, 'UseItem', '\\x00112233445566778899aabbccddeeff',
            clock_timestamp() - $3::text::bigint * interval '1 millisecond'
       from generate_series($1::int + 1, $1::int + $2::int) n`,
    [from, count, String(ageMs)],
  )
}

async function expire({ db }: CommandBench, seconds: number): Promise<Figures> {
  const signals = createSignals()
  const passes: (Signals['command.cleaned'] & { readonly atMs: number })[] = []
  const startedAtMs = performance.now()
  signals.on('command.cleaned', (pass) => void passes.push({ ...pass, atMs: performance.now() - startedAtMs }))
  const stop = new AbortController()
  const cleaning = run([createMarkerCleanup({ db, signals })], { signal: stop.signal })
  const sizes: number[] = []
  const lags: number[] = []
  let inserted = 0
  for (let tick = 1; tick <= seconds * 20; tick += 1) {
    await insert(db, { from: inserted, count: perSecond / 20, ageMs: keepMs })
    inserted += perSecond / 20
    if (tick % 20 === 0) {
      sizes.push(await sizeOf(db))
      lags.push(await lagOf(db))
      if (tick % 200 === 0) console.error(`  ${tick / 20} s: lag ${lags.at(-1)} ms, ${(sizes.at(-1) ?? 0) >> 20} MiB`)
    }
    const dueInMs = startedAtMs + tick * 50 - performance.now()
    if (dueInMs > 0) await new Promise((done) => setTimeout(done, dueInMs))
  }
  const elapsedS = (performance.now() - startedAtMs) / 1_000
  stop.abort()
  await cleaning
  const settled = lags.slice(Math.min(10, lags.length / 3))
  const third = Math.floor(settled.length / 3)
  const deleted = passes.filter(({ atMs }) => atMs <= elapsedS * 1_000)
  return {
    lagGrowthMs: mean(settled.slice(-third)) - mean(settled.slice(0, third)),
    highestLagMs: Math.max(...lags),
    insertedPerSecond: inserted / elapsedS,
    deletedPerSecond: sum(deleted.map((pass) => pass.deleted)) / elapsedS,
    deletedPerBusySecond: sum(deleted.map((pass) => pass.deleted)) / (sum(deleted.map((pass) => pass.durationMs)) / 1_000),
    sizeRatio: Math.max(...sizes.slice(-sizes.length / 3)) / Math.max(...sizes.slice(sizes.length / 3, -sizes.length / 3)),
  }
}

async function sizeOf(db: CommandBench['db']): Promise<number> {
  const { rows } = await db.query(`select pg_total_relation_size('waybill.command_marker')::text as bytes`)
  return Number((rows[0] as { bytes: string }).bytes)
}

async function lagOf(db: CommandBench['db']): Promise<number> {
  const { rows } = await db.query(
    `select greatest(0, extract(epoch from clock_timestamp() - min(created_at)) * 1000 - ${keepMs})::bigint::text as lag from waybill.command_marker`,
  )
  return Number((rows[0] as { lag: string }).lag)
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}

function mean(values: readonly number[]): number {
  return sum(values) / Math.max(1, values.length)
}
