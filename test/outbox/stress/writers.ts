/**
 * Business transactions of all kinds: one event and many, over few aggregates; some roll back; some commit long after others
 * that began later.
 */
import { randomInt, type Random } from '../../../src/core/service/random.ts'
import { event, type Outbox } from '../../../src/outbox/outbox.ts'
import type { Database, Tx } from '../../../src/postgres/query/database.ts'
import { transaction } from '../../../src/postgres/transaction/transaction.ts'
import { videos } from '../../setup/outbox-fixture.ts'

export interface WriterOptions {
  readonly db: Database
  readonly outbox: Outbox
  readonly random: Random
  /** Each writer has aggregates of its own and some that all share. */
  readonly aggregates: readonly string[]
  readonly events: number
  /** Whether more are needed than that. @default no */
  readonly goesOn?: () => boolean
  /** Called after each commit with the number of its events; awaited. */
  readonly onCommitted: (added: number) => Promise<void>
}

class Rollback extends Error {}

/** Writers wait for each other's aggregates, also while a machine stands still. */
export const patience = { statementTimeoutMs: 120_000, lockTimeoutMs: 120_000, idleInTransactionTimeoutMs: 120_000 }

/** Writes until `events` have committed and no more are needed; returns how many transactions rolled back. */
export async function write(options: WriterOptions): Promise<number> {
  const { db, outbox, random, aggregates, events, goesOn = () => false, onCommitted } = options
  let written = 0
  let rolledBack = 0
  const pick = (): string => aggregates[randomInt(random, 0, aggregates.length - 1)] as string
  const addSome = async (tx: Tx): Promise<number> => {
    const count = random.next() < 0.5 ? 1 : randomInt(random, 2, 8)
    // In one order for everybody, or two transactions would wait for each other.
    const ids = Array.from({ length: count }, pick).toSorted()
    if (random.next() < 0.3) for (const id of ids) await outbox.add(tx, videos.VideoPublished, id, { title: 'one by one' })
    else
      await outbox.addMany(
        tx,
        ids.map((id) => event(videos.VideoPublished, id, { title: 'at once' })),
      )
    return count
  }
  while (written < events || goesOn()) {
    const [fails, isSlow] = [random.next() < 0.15, random.next() < 0.1]
    try {
      const add = async (tx: Tx): Promise<number> => {
        const count = await addSome(tx)
        // Others commit what they took a number for later: time passes for this one.
        if (isSlow) await tx.query('select pg_sleep(0.02)')
        if (fails) throw new Rollback()
        return count
      }
      const added = await transaction(db, add, patience)
      written += added
      await onCommitted(added)
    } catch (error) {
      if (!(error instanceof Rollback)) throw error
      rolledBack += 1
    }
  }
  return rolledBack
}
