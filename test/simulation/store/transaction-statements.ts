/** What transactions ask about themselves and about each other. */
import { transactionStatus } from '../../../src/postgres/transaction/commit-outcome.ts'
import type { FakeStore } from './fake-store.ts'

/** A server that loses nothing has not crashed, either. */
const neverCrashedMs = String(Number.MAX_SAFE_INTEGER)

export function defineTransactions(store: FakeStore): void {
  store.define('transactionStatus', transactionStatus({ xid: '', server: '' }), (_context, [xid, server]) =>
    Promise.resolve([{ status: store.statusOf(Number(xid)) ?? null, steady_ms: server === null ? null : neverCrashedMs }]),
  )
}
