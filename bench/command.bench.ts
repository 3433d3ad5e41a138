/**
 * What idempotency costs: a command beside its bare transaction, repeats by cache and by marker, contention, clean-up, and what a
 * tenant notices of another one's hot key.
 */
import { cleanupBench } from './command/cleanup.ts'
import { costBench } from './command/cost.ts'
import { tenantsBench } from './command/tenants.ts'
import { type Bench, composeBench } from './harness.ts'

export const bench: Bench = composeBench({
  name: 'command',
  summary:
    'commands beside bare transactions, repeats by cache and marker, contention, a hot key beside a calm tenant, clean-up at 20,000 rows/s',
  parts: [costBench, tenantsBench, cleanupBench],
})
