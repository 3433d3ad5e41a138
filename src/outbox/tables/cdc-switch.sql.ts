/**
 * Who publishes what is added: relays, by its dispatch rows, or a connector; and the command that hands the outbox over, as operators are told to run it.
 */
import { sql, type Statement } from '../../postgres/query/sql.ts'
import type { OutboxTables } from './outbox.sql.ts'

export function selectDispatching(tables: OutboxTables): Statement<{ dispatching: boolean }> {
  return sql`select ${tables.dispatching}() as dispatching`
}

/**
 * No other transaction switches from here to the end of this one, and one that was about to has ended; ask after it. It is the lock that
 * those take who add events, so they are not held up.
 */
export function lockDispatching(tables: OutboxTables): Statement {
  return sql`lock table ${tables.outbox} in row exclusive mode`
}

/** With the schema that is meant, whatever the shell and the configuration say: run in another one, it would switch another outbox. */
export function cdcCommand(schema: string, words: string): string {
  return `waybill outbox cdc ${words} --schema ${schema}`
}
