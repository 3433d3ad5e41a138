/**
 * node-postgres as a `Database` (from a pool) or as a `Tx` (from a client inside the user's own transaction).
 *
 * One round trip begins the transaction, sets its time-outs and learns its id. The COMMIT tag is read: the server answers
 * COMMIT of a failed transaction with ROLLBACK and no error. A client that broke never goes back to the pool.
 */
import { WaybillError } from '../core/errors.ts'
import type { BeginOptions, Database, QueryResult, Queryable, Tx } from './database.ts'
import type { SqlValue } from './sql.ts'
import { isConnectionLoss } from './sql-state.ts'
import { commitFailure, openTxScope, transactionAborted } from './tx-scope.ts'

/** The part of a `pg` client we use. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<unknown>
  getTransactionStatus?(): string | null
}

/** The part of a client that a `pg` pool hands out. */
export interface PgPoolClient extends PgClient {
  release(error?: Error | boolean): void
  on(event: 'error', listener: (error: Error) => void): unknown
  removeListener(event: 'error', listener: (error: Error) => void): unknown
}

/** The part of a `pg` pool we use. */
export interface PgPool {
  connect(): Promise<PgPoolClient>
  query(text: string, values?: unknown[]): Promise<unknown>
  readonly totalCount: number
}

/** A pool becomes a database; a client inside a transaction becomes that transaction. */
export function fromPg<Pool extends PgPool>(pool: Pool): Database<PgPoolClient>
export function fromPg<Client extends PgClient>(client: Client): Tx<Client>
export function fromPg(handle: PgPool | PgClient): Database<PgPoolClient> | Tx<PgClient> {
  return 'totalCount' in handle ? fromPool(handle) : fromClient(handle)
}

function fromPool(pool: PgPool): Database<PgPoolClient> {
  return {
    query: async (text, values) => toResult(await pool.query(text, toValues(values))),
    attempt: async (options, work) => {
      const client = await pool.connect()
      // A checked-out client without a listener would end the process when its connection breaks.
      const ignore = (): void => undefined
      client.on('error', ignore)
      let broken: Error | undefined
      try {
        return await attemptOn(client, options, work)
      } catch (error) {
        if (mayBeBroken(error)) broken = error instanceof Error ? error : new Error(String(error))
        throw error
      } finally {
        client.removeListener('error', ignore)
        client.release(broken)
      }
    },
  }
}

async function attemptOn<Result>(client: PgPoolClient, options: BeginOptions, work: (tx: Tx<PgPoolClient>) => Promise<Result>): Promise<Result> {
  const connection = queryableOf(client)
  const xid = await begin(client, options)
  const scope = openTxScope(connection, client)
  let result: Result
  try {
    result = await work(scope.tx)
  } catch (error) {
    scope.end()
    if (!isConnectionLoss(error)) await client.query('rollback')
    throw error
  }
  scope.end()
  let tag: string
  try {
    tag = toTag(await client.query('commit'))
  } catch (error) {
    throw commitFailure(error, xid)
  }
  if (tag !== 'COMMIT') throw transactionAborted()
  return result
}

/** Four statements, one message: the numbers were checked by the options resolver, so they can stand in the text. */
async function begin(client: PgClient, options: BeginOptions): Promise<string> {
  const results = await client.query(
    `begin isolation level ${options.isolation};
     set local statement_timeout = ${options.statementTimeoutMs};
     set local lock_timeout = ${options.lockTimeoutMs};
     set local idle_in_transaction_session_timeout = ${options.idleInTransactionTimeoutMs};
     set local synchronous_commit = ${options.synchronousCommit};
     select pg_current_xact_id()::text as xid`,
  )
  const last = Array.isArray(results) ? (results.at(-1) as { rows?: { xid?: string }[] }) : undefined
  const xid = last?.rows?.[0]?.xid
  if (xid === undefined) throw new WaybillError('INTERNAL', 'BEGIN returned no transaction id.')
  return xid
}

function fromClient(client: PgClient): Tx<PgClient> {
  const connection = queryableOf(client)
  assertInTransaction(client)
  return openTxScope(
    {
      query: (text, values) => {
        assertInTransaction(client)
        return connection.query(text, values)
      },
    },
    client,
  ).tx
}

/** `T` is a transaction under way, `E` a failed one (its next statement fails by itself), `I` none. */
function assertInTransaction(client: PgClient): void {
  const status = client.getTransactionStatus?.()
  if (status === 'T' || status === 'E' || client.getTransactionStatus === undefined) return
  throw new WaybillError('NOT_A_TRANSACTION', 'fromPg(client): this client is not inside a transaction. Send BEGIN first, or use transaction(fromPg(pool), …).')
}

function queryableOf(client: PgClient): Queryable {
  return { query: async (text, values) => toResult(await client.query(text, toValues(values))) }
}

function toValues(values: readonly SqlValue[] | undefined): unknown[] | undefined {
  return values === undefined ? undefined : values.map((value) => (value instanceof Uint8Array && !Buffer.isBuffer(value) ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : value))
}

function toResult(result: unknown): QueryResult {
  const { rows, rowCount } = result as { rows?: unknown[]; rowCount?: number | null }
  return { rows: rows ?? [], rowCount: rowCount ?? 0 }
}

function toTag(result: unknown): string {
  return (result as { command?: string }).command ?? ''
}

/** A client whose state we cannot vouch for: its connection broke, or it timed out on the client's side only. */
function mayBeBroken(error: unknown): boolean {
  for (let each = error; each instanceof Error; each = each.cause) if (isConnectionLoss(each)) return true
  return false
}
