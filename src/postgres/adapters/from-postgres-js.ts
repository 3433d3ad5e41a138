/**
 * postgres.js as a `Database` (from `sql`) or as a `Tx` (from the `sql` of `sql.begin`).
 *
 * A client that renames columns (`transform: postgres.camel`) is refused: we read our own rows by their names.
 * Statements are sent unprepared, so they work behind a pooler in transaction mode.
 *
 * Limit: postgres.js asks each new connection for the types of arrays and does not listen to the answer, so a connection that ends just
 * then is a rejection that nobody handles. Pass `fetch_types: false`; our statements need no array types.
 *
 * Limit: a statement of `tx.native` that failed makes postgres.js fail the transaction in the end, whoever caught the error and
 * whatever was rolled back since. Run it inside of `tx.native.savepoint(…)`, or with `tx.query`.
 */
import { WaybillError } from '../../core/errors.ts'
import type { Database, Queryable, Tx } from '../query/database.ts'
import { guardPostgresJs } from './guard-postgres-js.ts'
import { ormDatabase, ormTx, wrongHandle } from './orm-database.ts'

/** The part of a postgres.js client or transaction that runs statements. */
export interface PostgresJsExecutor {
  unsafe(text: string, values?: never[]): PromiseLike<readonly unknown[]>
}

/** The part of a postgres.js transaction we use. */
export interface PostgresJsTransaction extends PostgresJsExecutor {
  savepoint(...rest: never[]): unknown
}

/** The part of a postgres.js client we use. */
export interface PostgresJsDatabase<Native> extends PostgresJsExecutor {
  begin<Result>(options: string, work: (sql: Native) => Result | Promise<Result>): Promise<unknown>
}

/** `sql` becomes a database; the `sql` of `sql.begin` becomes that transaction. */
export function fromPostgresJs<Native extends PostgresJsTransaction>(sql: Native): Tx<Native>
export function fromPostgresJs<Native extends PostgresJsTransaction>(sql: PostgresJsDatabase<Native>): Database<Native>
export function fromPostgresJs<Native extends PostgresJsTransaction>(
  handle: Native | PostgresJsDatabase<Native>,
): Tx<Native> | Database<Native> {
  if (typeof (handle as Partial<PostgresJsExecutor> | undefined)?.unsafe !== 'function') {
    throw wrongHandle('fromPostgresJs', 'the sql of postgres(…), or the sql of sql.begin(async (sql) => …)')
  }
  assertPlainNames(handle)
  if ('savepoint' in handle) return ormTx(postgresJsQueryable(handle), handle)
  if (typeof (handle as { release?: unknown }).release === 'function' || typeof handle.begin !== 'function') {
    throw wrongHandle('fromPostgresJs', 'a pool or a transaction, not a reserved connection. Use sql.begin(…)')
  }
  return ormDatabase<Native>({
    pool: handle,
    ...postgresJsQueryable(handle),
    begin: async ({ isolation, gate }, work) => {
      const guarded = (sql: Native): ReturnType<typeof work> => work(guardPostgresJs(sql, gate))
      return (await handle.begin(`isolation level ${isolation}`, guarded)) as Awaited<ReturnType<typeof work>>
    },
    connection: postgresJsConnection,
  })
}

/** Its transactions do not show their options, but the identifiers they make do. */
function assertPlainNames(handle: object): void {
  const { options } = handle as { options?: { transform?: Record<string, { from?: unknown } | undefined> } }
  const identifier = (handle as unknown as (name: string) => { value?: string })('aB-c')
  const hidden = identifier.value !== '"aB-c"'
  const shown = ['column', 'value', 'row'].some((part) => options?.transform?.[part]?.from !== undefined)
  if (!hidden && !shown) return
  throw new WaybillError(
    'INVALID_OPTION',
    'fromPostgresJs(sql): this client transforms names or values, and would rename our columns. Make one without `transform` for Waybill.',
  )
}

/** Runs statements on a postgres.js client, or in a transaction of the user's own. */
export function postgresJsQueryable(handle: PostgresJsExecutor): Queryable {
  return queryableOf(handle, {})
}

/**
 * Runs statements in a transaction of ours. postgres.js listens to each statement by its `catch`, and would not commit after one
 * failed, not even after a rollback to a savepoint. We ask the server before COMMIT, which knows better.
 */
export function postgresJsConnection(handle: PostgresJsExecutor): Queryable {
  return queryableOf(handle, { catch: () => undefined })
}

function queryableOf(handle: PostgresJsExecutor, unheard: object): Queryable {
  const executor = handle as {
    unsafe(text: string, values: readonly unknown[], options: object): PromiseLike<readonly unknown[]>
  }
  return {
    query: async (text, values) => {
      const result = await Object.assign(executor.unsafe(text, values === undefined ? [] : [...values], alone), unheard)
      return { rows: [...result], rowCount: (result as { count?: number | null }).count ?? result.length }
    },
  }
}

/**
 * Keeps postgres.js from sending the next statement on the same connection before this one is answered. PgBouncer 1.18
 * takes the answer for the end of both, gives the server to somebody else, and the second one waits for ever.
 */
const alone = { onexecute: (): boolean => false }
