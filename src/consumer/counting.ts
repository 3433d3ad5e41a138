/**
 * What counts is written in a transaction of its own. There the server ends a statement that takes too long, and nothing has counted;
 * a single statement that was given up would land some time, besides the one that was sent in its place.
 */
import type { Tx } from '../postgres/database.ts'
import { oncePer } from '../core/once-per.ts'
import { transaction, transactionOptions } from '../postgres/transaction.ts'
import type { ConsumerSettings } from './consumer-options.ts'

export async function counting<Result>(settings: ConsumerSettings, write: (tx: Tx) => Promise<Result>): Promise<Result> {
  return await transaction(settings.db, write, optionsOf(settings))
}

const optionsOf = oncePer(({ statementTimeoutMs, lockTimeoutMs, signals, clock, random }: ConsumerSettings) =>
  transactionOptions({ statementTimeoutMs, lockTimeoutMs, signals, clock, random }),
)
