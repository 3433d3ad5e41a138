/**
 * Whose entries a cache holds: those of one schema, one deployment, one database.
 *
 * Several services, tenants and environments may share one Redis, and their principals and request ids may be the same. The
 * database is asked once; while it cannot be, the cache is left out. A question holds commands up for a second at most: the
 * connection that it went out on may be dead without anybody having said so. A late answer still counts, until after a while
 * the question is given up with its connection, and put again on another one.
 */
import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import type { SignalBus } from '../../core/signals.ts'
import { unlessLate } from '../../core/service/abort.ts'
import { one, type Interruptible } from '../../postgres/query/database.ts'
import { selectDeployment } from '../../postgres/schema/migrate.sql.ts'
import { withDeadlines } from '../../postgres/transaction/deadline.ts'

/** Names the database in every key; undefined: go on without the cache. */
export type CacheScope = () => Promise<string | undefined>

/** Of commands without a cache. */
export const noScope: CacheScope = async () => undefined

export interface ScopeParts {
  readonly signals: SignalBus
  readonly clock: Clock
}

interface Question {
  readonly askedAtMs: number
  /** In time, or not at all: whoever comes after that does not wait again. */
  readonly answer: Promise<string>
}

const answerMs = 1_000
const askAgainMs = 5_000

export function deploymentScope(db: Interruptible, schema: string, { signals, clock }: ScopeParts): CacheScope {
  const heard = withDeadlines(db, { statementMs: askAgainMs, clock })
  let known: string | undefined
  let question: Question | undefined
  const read = async (): Promise<string> => {
    const { service, deployment_id: deploymentId, identity } = await one(heard, selectDeployment(schema))
    return (known ??= JSON.stringify([schema, service, deploymentId, identity]))
  }
  const ask = (): Question => {
    const reading = read()
    const asked = { askedAtMs: clock.monotonicMs(), answer: inTime(reading, clock) }
    reading.catch(() => {
      if (question === asked) question = undefined
    })
    return asked
  }
  const isOverdue = ({ askedAtMs }: Question): boolean => clock.monotonicMs() - askedAtMs >= askAgainMs
  return async () => {
    if (known !== undefined) return known
    if (question === undefined || isOverdue(question)) question = ask()
    try {
      return await question.answer
    } catch (error) {
      signals.emit('command.cache-failed', { operation: 'claim', error })
      return undefined
    }
  }
}

async function inTime(reading: Promise<string>, clock: Clock): Promise<string> {
  const answer = await unlessLate(reading, answerMs, clock)
  if (answer !== undefined) return answer
  throw new WaybillError('TIMEOUT', `The database did not say within ${answerMs} ms whose the command cache is.`)
}
