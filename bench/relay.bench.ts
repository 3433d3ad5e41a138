/**
 * What the relay costs, against the usual design and against the limit of its own statements, on one Postgres in one run.
 *
 * Parts: draining (with and without receipts, several relays), backlogs of different depth, a key with 100,000 held events,
 * an old snapshot held open, and what `outbox.add` adds to the business transaction.
 */
import { type Bench, composeBench } from './harness.ts'
import { addBench } from './relay/add.ts'
import { backlogBench } from './relay/backlog.ts'
import { drainBench } from './relay/drain.ts'
import { latencyBench } from './relay/latency.ts'

export const bench: Bench = composeBench({
  name: 'relay',
  summary: 'draining, deep backlogs, held keys, old snapshots, the cost of add, and idle latency',
  parts: [drainBench, backlogBench, addBench, latencyBench],
})
