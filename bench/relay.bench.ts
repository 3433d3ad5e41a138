/**
 * What the relay costs, against the usual design and against the limit of its own statements, on one Postgres in one run.
 *
 * Parts: draining (with and without receipts, several relays), backlogs of different depth, a key with 100,000 held events,
 * an old snapshot held open, and what `outbox.add` adds to the business transaction.
 */
import { type Bench, type BenchOptions, type BenchResult } from './harness.ts'
import { addBench } from './relay/add.ts'
import { backlogBench } from './relay/backlog.ts'
import { drainBench } from './relay/drain.ts'
import { latencyBench } from './relay/latency.ts'

const parts: readonly Bench[] = [drainBench, backlogBench, addBench, latencyBench]

export const bench: Bench = {
  name: 'relay',
  summary: 'draining, deep backlogs, held keys, old snapshots, the cost of add, and idle latency',
  run: async (options: BenchOptions): Promise<BenchResult> => {
    const results: BenchResult[] = []
    for (const part of parts) results.push(await part.run(options))
    return {
      bench: 'relay',
      unit: results.map((each) => `${each.bench}: ${each.unit}`).join('; '),
      rounds: Math.min(...results.map((each) => each.rounds)),
      contenders: results.flatMap((each) => each.contenders),
      bars: results.flatMap((each) => each.bars),
    }
  },
}
