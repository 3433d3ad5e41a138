/**
 * A service process that runs deposits it is sent, with a place to die at between any two steps of the pipeline.
 *
 * Pending entries of the cache live for a second only, so that what a killed process left behind does not last.
 */
import { createCommandsOn, createPipeline, resolveOptions } from '../../src/command/commands.ts'
import type { Pipeline } from '../../src/command/pipeline.ts'
import { errorMessage } from '../../src/core/errors.ts'
import { connect } from '../../src/postgres/connect.ts'
import { createFailpoints, type Failpoints } from '../../src/testing/failpoint.ts'
import { bankOn, depositCommand, type Deposit } from './bank.ts'
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
const commands = createCommandsOn(withPlacesToDie(createPipeline(settings), createFailpoints()), settings)
const deposit = depositCommand({ store: 'response' })

process.on('message', (job: Job) => {
  commands.run(deposit, { principal: 'ann', requestId: job.requestId, input: job.input }).then(
    (outcome) => process.send?.({ id: job.id, outcome: { ...outcome, cause: undefined } }),
    (error: unknown) => process.send?.({ id: job.id, error: errorMessage(error) }),
  )
})
process.send?.('ready')

/** Failpoints around the ports; the pipeline itself knows nothing of them. */
function withPlacesToDie(pipeline: Pipeline, { hit }: Failpoints): Pipeline {
  const after = async <Result>(place: string, result: Promise<Result>): Promise<Result> => {
    const value = await result
    await hit(place)
    return value
  }
  return {
    ...pipeline,
    db: {
      ...pipeline.db,
      attempt: (options, work) =>
        after(
          'committed',
          pipeline.db.attempt(options, async (tx) => {
            await hit('begun')
            return await after('committing', work(tx))
          }),
        ),
    },
    cache: {
      ...pipeline.cache,
      claim: (...args) => after('claimed', pipeline.cache.claim(...args)),
      complete: async (...args) => {
        await hit('completing')
        await after('completed', pipeline.cache.complete(...args))
      },
    },
    markers: {
      ...pipeline.markers,
      claim: (...args) => after('marked', pipeline.markers.claim(...args)),
      keep: (...args) => after('kept', pipeline.markers.keep(...args)),
    },
    execute: async (...args) => {
      await hit('executing')
      return await after('executed', pipeline.execute(...args))
    },
    outbox: { addMany: (...args) => after('added', pipeline.outbox.addMany(...args)) },
  }
}
