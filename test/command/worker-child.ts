/**
 * A service process that runs deposits it is sent, with a place to die at between any two steps of the pipeline.
 *
 * Pending entries of the cache live for a second only, so that what a killed process left behind does not last.
 */
import { createCommandsOn, createPipeline, resolveOptions } from '../../src/command/commands.ts'
import { errorMessage } from '../../src/core/errors.ts'
import { connect } from '../../src/postgres/connect.ts'
import { createFailpoints } from '../../src/testing/failpoint.ts'
import { bankOn, depositCommand, type Deposit } from './bank.ts'
import { withPlaces } from './pipeline-places.ts'
import { redisClients } from './redis-clients.ts'

export interface Job {
  readonly id: number
  readonly requestId: string
  readonly input: Deposit
}

const { DATABASE_URL = '', REDIS_URL = '' } = process.env
const db = connect({ url: DATABASE_URL, max: 8 })
const open = redisClients['ioredis']
if (open === undefined) throw new Error('There is no client.')
const { cache } = await open(REDIS_URL)
const { outbox } = bankOn(db)
const settings = resolveOptions({ db, outbox, cache, statementTimeoutMs: 900, pendingTtlMs: 1_000, cacheBudgetMs: 100 })
const commands = createCommandsOn(withPlaces(createPipeline(settings), createFailpoints().hit), settings)
const deposit = depositCommand({ store: 'response' })

process.on('message', (job: Job) => {
  commands.run(deposit, { principal: 'ann', requestId: job.requestId, input: job.input }).then(
    (outcome) => process.send?.({ id: job.id, outcome: { ...outcome, cause: undefined } }),
    (error: unknown) => process.send?.({ id: job.id, error: errorMessage(error) }),
  )
})
process.send?.('ready')
