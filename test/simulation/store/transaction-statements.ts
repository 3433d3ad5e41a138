/** What transactions ask about themselves and about each other. */
import { transactionStatus } from '../../../src/postgres/commit-outcome.ts'
import type { FakeStore } from './fake-store.ts'

export function defineTransactions(store: FakeStore): void {
  store.define('transactionStatus', transactionStatus({ xid: '', server: '' }, 0), (_context, [xid]) =>
    Promise.resolve([{ status: store.statusOf(Number(xid)) ?? null }]),
  )
}
