/**
 * What a deep backlog, a key with many held events and an old snapshot do to the pace of a drain.
 */
import { type Bench, defineBench } from '../harness.ts'
import { drain, empty, fill, openOutboxBench, type OutboxBench } from './outbox-bench.ts'

interface Context {
  readonly bench: OutboxBench
  readonly measured: number
  readonly small: number
  readonly middle: number
  readonly deep: number
  readonly held: number
  readonly snapshot: number
}

export const backlogBench: Bench = defineBench<Context>({
  name: 'backlog',
  summary: 'the pace of a drain beside a deep backlog, a held key and an old snapshot',
  unit: 'events/s',
  setup: async ({ quick }) => {
    const bench = await openOutboxBench()
    const scale = quick ? 50 : 1
    return {
      bench,
      measured: 10_000,
      small: 10_000,
      middle: 200_000 / scale,
      deep: 1_000_000 / scale,
      held: 100_000 / scale,
      snapshot: 500_000 / scale,
    }
  },
  close: ({ bench }) => bench.close(),
  contenders: {
    'backlog 10k': async (context) => await paceAt(context, context.small),
    'backlog 200k': async (context) => await paceAt(context, context.middle),
    'backlog 1M': async (context) => await paceAt(context, context.deep),
    'beside a held key': async ({ bench, measured, held }) => {
      await empty(bench)
      await holdOneKey(bench, held)
      await fill(bench, measured)
      return await drain(bench, measured)
    },
    'beside no held key': async ({ bench, measured }) => {
      await empty(bench)
      await fill(bench, measured)
      return await drain(bench, measured)
    },
    'under an old snapshot': async ({ bench, snapshot }) =>
      await bench.db.attempt(plainTransaction, async (tx) => {
        await tx.query('set transaction isolation level repeatable read')
        await tx.query('select 1')
        await empty(bench)
        await fill(bench, snapshot)
        return await drain(bench, snapshot)
      }),
    'under no snapshot': async ({ bench, snapshot }) => {
      await empty(bench)
      await fill(bench, snapshot)
      return await drain(bench, snapshot)
    },
  },
  bars: [
    {
      name: 'cost per event at 1M ÷ at 10k',
      target: 1.3,
      direction: 'at-most',
      of: (sample) => sample('backlog 10k') / sample('backlog 1M'),
    },
    {
      name: 'beside a held key ÷ beside none',
      target: 0.9,
      direction: 'at-least',
      of: (sample) => sample('beside a held key') / sample('beside no held key'),
    },
    {
      name: 'under an old snapshot ÷ under none',
      target: 0.5,
      direction: 'at-least',
      of: (sample) => sample('under an old snapshot') / sample('under no snapshot'),
    },
  ],
})

const plainTransaction = {
  isolation: 'repeatable read',
  statementTimeoutMs: 0,
  lockTimeoutMs: 0,
  idleInTransactionTimeoutMs: 0,
  synchronousCommit: 'on',
} as const

/** The first `measured` events out of a backlog of `depth`. */
async function paceAt({ bench, measured }: Context, depth: number): Promise<number> {
  await empty(bench)
  await fill(bench, depth)
  await bench.db.query('analyze waybill.outbox, waybill.outbox_dispatch')
  return await drain(bench, measured)
}

/** One parked head with `count` events held behind it. */
async function holdOneKey(bench: OutboxBench, count: number): Promise<void> {
  await fill(bench, count, { prefix: 'held', keys: 1 })
  await bench.db.query(`
    update waybill.outbox_dispatch set state = 2`)
  await bench.db.query(`
    update waybill.outbox_dispatch set state = 3, parked_at = now() where seq = (select min(seq) from waybill.outbox_dispatch)`)
  await bench.db.query('vacuum analyze waybill.outbox_dispatch')
}
