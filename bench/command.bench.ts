/**
 * What idempotency costs: a command beside its bare transaction, repeats by cache and by marker, contention, and clean-up.
 */
import { type Bench, type BenchOptions, type BenchResult } from './harness.ts'
import { cleanupBench } from './command/cleanup.ts'
import { costBench } from './command/cost.ts'

const parts: readonly Bench[] = [costBench, cleanupBench]

export const bench: Bench = {
  name: 'command',
  summary: 'commands beside bare transactions, repeats by cache and marker, contention, clean-up at 20,000 rows/s',
  run: async (options: BenchOptions): Promise<BenchResult> => {
    const results: BenchResult[] = []
    for (const part of parts) results.push(await part.run(options))
    return {
      bench: 'command',
      unit: results.map((each) => `${each.bench}: ${each.unit}`).join('; '),
      rounds: Math.min(...results.map((each) => each.rounds)),
      contenders: results.flatMap((each) => each.contenders),
      bars: results.flatMap((each) => each.bars),
    }
  },
}
