/**
 * What counts is written in a transaction of its own. There the server ends a statement that takes too long, and nothing has counted;
 * a single statement that was given up would land some time, besides the one that was sent in its place.
 */
import type { Tx } from '../../postgres/query/database.ts'
import { oncePer } from '../../core/options.ts'
import { transaction, transactionOptions } from '../../postgres/transaction/transaction.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'

export async function counting<Result>(
  settings: ConsumerSettings,
  write: (tx: Tx) => Promise<Result>,
  how: 'waiting' | 'unless locked' = 'waiting',
): Promise<Result> {
  const { waiting, unlessLocked } = optionsOf(settings)
  return await transaction(settings.db, write, how === 'waiting' ? waiting : unlessLocked)
}

/** Who has a row for longer may have it for as long as a handler takes. */
const shortLockMs = 100

const optionsOf = oncePer(({ statementTimeoutMs, lockTimeoutMs, signals, clock, random }: ConsumerSettings) => {
  const common = { statementTimeoutMs, signals, clock, random }
  return {
    waiting: transactionOptions({ ...common, lockTimeoutMs }),
    unlessLocked: transactionOptions({ ...common, lockTimeoutMs: Math.min(lockTimeoutMs, shortLockMs) }),
  }
})
