/**
 * A service process that runs deposits it is sent, with a place to die at between any two steps of the pipeline.
 *
 * Its answer tells the numbers that the plan drew. Pending entries of the cache last for longer than any test: what a killed process
 * left behind must not keep a repeat waiting.
 */
import { createCommandsOn, createPipeline, resolveOptions } from '../../src/command/commands.ts'
import type { Outcome } from '../../src/command/model/outcome.ts'
import { errorMessage } from '../../src/core/errors.ts'
import { connect } from '../../src/postgres/connect.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createFailpoints } from '../../src/testing/faults/failpoint.ts'
import { bankOn, depositCommand, type Deposit, type DepositResult } from './bank.ts'
import { newHistory } from './history.ts'
import { withPlaces } from './pipeline-places.ts'
import { redisClients } from './redis-clients.ts'

export interface Job {
  readonly id: number
  readonly requestId: string
  readonly input: Deposit
}

/** What becomes of a job; `id` is the job's. */
export interface Answer {
  readonly id: number
  readonly outcome?: Outcome<DepositResult>
  readonly error?: string
  readonly drawn: readonly number[]
}

const { DATABASE_URL = '', REDIS_URL = '' } = process.env
const db = connect({ url: DATABASE_URL, max: 8 })
const open = redisClients['ioredis']
if (open === undefined) throw new Error('There is no client.')
const { cache } = await open(REDIS_URL)
const { outbox } = bankOn(db)
const settings = resolveOptions({ db, outbox, cache, statementTimeoutMs: 900, pendingTtlMs: 3_600_000, cacheBudgetMs: 100 })
const commands = createCommandsOn(withPlaces(createPipeline(settings), createFailpoints().hit), settings)
const deposit = depositCommand({ store: 'response' })

// A first connection may take long on a busy machine, and a job that gets none never comes to its place.
await eventually(() => db.query('select 1'))
process.on('message', (job: Job) => void run(job).then((answer) => process.send?.(answer)))
process.send?.('ready')

async function run({ id, requestId, input }: Job): Promise<Answer> {
  const { drawn, outcome, error } = await newHistory().record({ requestId, amount: input.amount }, () =>
    commands.run(deposit, { principal: 'ann', requestId, input }),
  )
  const ended = outcome === undefined ? { error: errorMessage(error) } : { outcome: { ...outcome, cause: undefined } }
  return { id, ...ended, drawn }
}
