/**
 * What idempotency costs: a command beside its bare transaction, repeats by cache and by marker, contention, and clean-up.
 */
import { cleanupBench } from './command/cleanup.ts'
import { costBench } from './command/cost.ts'
import { type Bench, composeBench } from './harness.ts'

export const bench: Bench = composeBench({
  name: 'command',
  summary: 'commands beside bare transactions, repeats by cache and marker, contention, clean-up at 20,000 rows/s',
  parts: [costBench, cleanupBench],
})
