/** The statement that says "there is news" to relays in other processes. */
import { sql, type Statement } from '../../postgres/query/sql.ts'

/** Outside any business transaction: within one, NOTIFY makes all commits of the server queue. */
export function notifyChannel(channel: string, payload: string): Statement {
  return sql`select pg_notify(${channel}, ${payload})`
}
