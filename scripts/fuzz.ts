/**
 * `npm run fuzz -- --for 60s`: plays bad input against what faces the outside, in rounds, and tells how many inputs each corpus had.
 *
 * `--seed` chooses the first round's seed, `--only <part of a name>` some corpora, `--path` one input of a failure, `--json` prints the
 * report on standard output. Exit code: 0 if nothing failed, 1 if something did, 2 for a wrong call. It needs nothing running.
 */
import { parseArgs } from 'node:util'
import { connect } from '../src/postgres/connect.ts'
import { migrate } from '../src/postgres/schema/migrate.ts'
import { startPostgres } from '../src/testing/servers/postgres.ts'
import { fuzz, type Corpus, type FuzzReport } from '../test/fuzz/fuzz.ts'
import { httpCorpora, type FuzzWorld } from '../test/fuzz/http-corpora.ts'
import { messageCorpora } from '../test/fuzz/message-corpora.ts'
import { textCorpora } from '../test/fuzz/text-corpora.ts'

process.exitCode = await main()

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      for: { type: 'string', default: '60s' },
      seed: { type: 'string', default: '1' },
      only: { type: 'string', default: '' },
      path: { type: 'string' },
      json: { type: 'boolean', default: false },
    },
  })
  const [, amount, unit] = /^(\d+)(s|m)$/.exec(values.for) ?? []
  const [seed, forMs] = [Number(values.seed), Number(amount) * (unit === 'm' ? 60_000 : 1_000)]
  const corpora = [...httpCorpora, ...messageCorpora, ...textCorpora].filter(({ name }) => name.includes(values.only))
  if (!Number.isSafeInteger(seed) || !(forMs > 0) || corpora.length === 0) {
    console.error('Usage: npm run fuzz -- [--for 60s] [--seed 1] [--only consumer] [--path 3:0:1] [--json]')
    return 2
  }
  const report = await play(corpora, { seed, forMs, path: values.path })
  if (values.json) console.log(JSON.stringify(report, null, 2))
  else tell(report)
  return report.verdict === 'pass' ? 0 : 1
}

interface Wanted {
  readonly seed: number
  readonly forMs: number
  readonly path: string | undefined
}

async function play(corpora: readonly Corpus<FuzzWorld>[], { seed, forMs, path }: Wanted): Promise<FuzzReport> {
  const postgres = await startPostgres()
  const db = connect({ url: postgres.url })
  try {
    await migrate(db, { schema: 'waybill', service: 'fuzz' })
    const endsAt = performance.now() + forMs
    const isOver = (rounds: number): boolean => (path === undefined ? performance.now() >= endsAt : rounds > 0)
    return await fuzz({ corpora, world: { db }, seed, isOver, path })
  } finally {
    await db.close()
    await postgres.stop()
  }
}

function tell({ verdict, seed, rounds, inputs, failures, heapMiB }: FuzzReport): void {
  for (const [name, count] of Object.entries(inputs)) console.log(`${name.padEnd(16)} ${String(count).padStart(8)} inputs`)
  console.log(`heap after each round: ${heapMiB.first} MiB at first, ${heapMiB.last} at last, ${heapMiB.most} at most`)
  for (const { corpus, seed: failed, path, error } of failures) {
    console.log(`\nFAILED ${corpus}: ${error}`)
    if (path !== '') console.log(`Again: npm run fuzz -- --only ${corpus} --seed ${failed} --path ${path}`)
  }
  console.log(`${verdict}: ${rounds} rounds, seed ${seed}`)
}
