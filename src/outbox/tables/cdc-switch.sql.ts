/**
 * Who publishes what is added: relays, by its dispatch rows, or a connector.
 */
import { sql, type Statement } from '../../postgres/query/sql.ts'
import type { OutboxTables } from './outbox.sql.ts'

export function selectDispatching(tables: OutboxTables): Statement<{ dispatching: boolean }> {
  return sql`select ${tables.dispatching}() as dispatching`
}

/**
 * Nobody switches from here to the end of the transaction, and whoever was about to has ended; ask after it. It is the lock that
 * those take who add events, so they are not held up.
 */
export function lockDispatching(tables: OutboxTables): Statement {
  return sql`lock table ${tables.outbox} in row exclusive mode`
}
