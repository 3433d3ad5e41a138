/**
 * What the suites of the adapter contract need of an adapter, and what they ask of the database behind its back.
 */
import type { Database, Queryable, Tx } from '../../src/postgres/query/database.ts'
import type { FileDatabase } from '../setup/test-database.ts'

/** One adapter over one connection of its library, and the library's own way to do things. */
export interface AdapterHarness<Native> {
  readonly db: Database<Native>
  /** Adds a row to the table `note (id int, text text)`. */
  insertNote(native: Native, id: number, text: string): Promise<unknown>
  updateNote(native: Native, id: number, text: string): Promise<unknown>
  /** `select pg_current_xact_id()::text`. */
  nativeXid(native: Native): Promise<string>
  /** The user's own transaction, its handle given to the adapter. */
  ownTransaction(work: (tx: Tx<Native>) => Promise<void>): Promise<unknown>
  close(): Promise<unknown>
}

/** What each suite is given. */
export interface AdapterContext<Native> {
  readonly database: FileDatabase
  /** Opens the adapter, through the way under test unless told otherwise; it is closed after the test. */
  use(url?: string): Promise<AdapterHarness<Native>>
}

export async function notes(database: FileDatabase): Promise<unknown[]> {
  return (await database.pool.query('select id, text from note order by id')).rows
}

export async function backendPid(tx: Queryable): Promise<unknown> {
  return ((await tx.query('select pg_backend_pid() as pid')).rows[0] as { pid: unknown }).pid
}

/** One row for each connection that waits for a lock. */
export const lockWaits = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
