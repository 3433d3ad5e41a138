/**
 * Drizzle as a `Database` (from a drizzle database) or as a `Tx` (from a transaction), over node-postgres or postgres.js.
 *
 * Over a node-postgres pool we take the client out ourselves: Drizzle never gives one back whose BEGIN was refused, so
 * each broken connection would cost the pool a place for good.
 */
import { WaybillError } from '../../core/errors.ts'
import { borrowClient, isCleanAfter, type PgPool } from './borrow-client.ts'
import type { Database, Interruptible, Isolation, Queryable, Tx } from '../query/database.ts'
import { postgresJsConnection, postgresJsQueryable, type PostgresJsExecutor, guardBegin } from './from-postgres-js.ts'
import { guardPgClient, isEnding } from './from-pg.ts'
import { notUnderWay, ormDatabase, ormTx, wrongHandle, type Begin } from './orm-database.ts'
import type { SqlValue } from '../query/sql.ts'

/** The part of a drizzle handle that runs statements. */
export interface DrizzleExecutor {
  execute(query: never): PromiseLike<unknown>
}

/** The part of a drizzle transaction we use. */
export interface DrizzleTransaction extends DrizzleExecutor {
  rollback(): never
}

/** The part of a drizzle database we use. */
export interface DrizzleDatabase<Native> extends DrizzleExecutor {
  transaction<Result>(work: (tx: Native) => Promise<Result>, config?: { isolationLevel?: Isolation }): Promise<Result>
}

/** A drizzle database becomes a database; a transaction of it becomes that transaction. */
export function fromDrizzle<Native extends DrizzleTransaction>(tx: Native): Tx<Native>
export function fromDrizzle<Native extends DrizzleTransaction>(db: DrizzleDatabase<Native>): Database<Native>
export function fromDrizzle<Native extends DrizzleTransaction>(
  handle: Native | DrizzleDatabase<Native>,
): Tx<Native> | Database<Native> {
  if (typeof (handle as Partial<DrizzleExecutor> | undefined)?.execute !== 'function') {
    throw wrongHandle('fromDrizzle', 'a drizzle database, or the tx of db.transaction(async (tx) => …)')
  }
  if (isTransaction(handle)) return ormTx(queryableOf(handle), handle, () => assertNotEnding(handle))
  if (isOneConnection(sessionOf(handle)?.client)) {
    throw wrongHandle('fromDrizzle', 'a drizzle database over a pool, not over one connection. Use drizzle({ client: pool })')
  }
  return ormDatabase<Native>({
    pool: sessionOf((handle as { $primary?: DrizzleExecutor }).$primary ?? handle)?.client ?? handle,
    ...interruptible(handle),
    begin: (how, work) => begin(handle, how, work),
    connection: (native) => queryableOf(native, postgresJsConnection),
  })
}

function isTransaction<Native extends DrizzleTransaction>(handle: Native | DrizzleDatabase<Native>): handle is Native {
  return 'rollback' in handle
}

/** Over node-postgres; Drizzle and postgres.js do not say it. */
function assertNotEnding(handle: DrizzleExecutor): void {
  const client = sessionOf(handle)?.client
  if (client !== undefined && isEnding(client))
    throw notUnderWay('fromDrizzle', 'Its end was sent. Await everything before that.')
}

interface Session<Native> {
  readonly client?: Partial<PgPool & PostgresJsExecutor & { begin: unknown }>
  transaction: DrizzleDatabase<Native>['transaction']
}

function sessionOf<Native>(handle: DrizzleExecutor): Session<Native> | undefined {
  return (handle as { _?: { session?: Session<Native> } })._?.session
}

function withClient<Native>(session: Session<Native>, client: object): Session<Native> {
  return Object.create(session, { client: { value: client } }) as Session<Native>
}

/** Transactions that are under way together would run into each other there. Clients of node-postgres have it, pools do not. */
function isOneConnection(client: object | undefined): boolean {
  return client !== undefined && 'getTypeParser' in client
}

/** Drizzle's statements, those that end the transaction too, go through the client of the session: that is where the gate is. */
function begin<Native, Result>(
  db: DrizzleDatabase<Native>,
  { isolation, gate, givenUp }: Begin,
  closure: (native: Native) => Promise<Result>,
): Promise<Result> {
  const work = (native: Native): Promise<Result> => closure(nestOneByOne(native))
  const session = sessionOf<Native>(db)
  const beginOn = (client: object): Promise<Result> => {
    return withClient(session as Session<Native>, client).transaction(work, { isolationLevel: isolation })
  }
  const client = session?.client
  if (typeof client?.begin === 'function') return beginOn(guardBegin(client, gate))
  if (client?.totalCount === undefined) return db.transaction(work, { isolationLevel: isolation })
  return borrowClient(client as PgPool, givenUp, async (borrowed, clean) => {
    try {
      const result = await beginOn(guardPgClient(borrowed, gate))
      clean()
      return result
    } catch (error) {
      if (isCleanAfter(error, borrowed)) clean()
      throw error
    }
  })
}

type Nest = (work: (nested: object) => Promise<unknown>, ...rest: unknown[]) => Promise<unknown>

/**
 * Refuses a transaction nested in this one while another is under way in it. Drizzle gives their savepoints the same name, so the end of
 * one would be that of the other: rolled back, it would take the other's statements with it, and nobody would be told.
 */
function nestOneByOne<Native>(native: Native): Native {
  const { transaction } = native as { transaction?: Nest }
  if (transaction === undefined) return native
  let isNesting = false
  const nest: Nest = async (work, ...rest) => {
    if (isNesting) throw nestedAtOnce()
    isNesting = true
    try {
      return await transaction.call(native, (nested) => work(nestOneByOne(nested)), ...rest)
    } finally {
      isNesting = false
    }
  }
  return Object.assign(native as object, { transaction: nest }) as Native
}

function nestedAtOnce(): WaybillError {
  return new WaybillError(
    'NOT_A_TRANSACTION',
    'Two transactions were nested in the same one at once: Drizzle gives their savepoints one name, so the end of one would end the other. Nothing of this one was run; begin it when the other has ended.',
  )
}

/** Over a node-postgres pool, what may be given up runs on a client that we take out ourselves, so that it can be closed. */
function interruptible(handle: DrizzleExecutor): Interruptible {
  // What `withReplicas` makes hands statements on to the database that it writes to, whatever its own session is.
  const own = (handle as { $primary?: DrizzleExecutor }).$primary ?? handle
  const session = sessionOf(own)
  const plain = queryableOf(handle)
  if (session?.client?.totalCount === undefined) return plain
  return {
    query: async (text, values, { givenUp } = {}) => {
      if (givenUp === undefined) return await plain.query(text, values)
      return await borrowClient(session.client as PgPool, givenUp, async (client, clean) => {
        const onClient: DrizzleExecutor = Object.create(own, { session: { value: withClient(session, client) } })
        const result = await throughDrizzle(onClient).query(text, values)
        clean()
        return result
      })
    },
  }
}

/** Over postgres.js straight to the client, which needs more care than Drizzle takes; else through Drizzle. */
function queryableOf(handle: DrizzleExecutor, overPostgresJs = postgresJsQueryable): Queryable {
  const client = sessionOf(handle)?.client
  return typeof client?.unsafe === 'function' ? overPostgresJs(client as PostgresJsExecutor) : throughDrizzle(handle)
}

function throughDrizzle(handle: DrizzleExecutor): Queryable {
  const executor: { execute(query: Prebuilt): PromiseLike<unknown> } = handle
  return {
    query: async (text, values) => {
      const result = await executor.execute(prebuilt(text, values ?? [])).then(undefined, rethrowCause)
      // A script of several statements answers with a list of results, and no rows of its own.
      const { rows = [], rowCount } = result as { rows?: unknown[]; rowCount?: number | null }
      return { rows, rowCount: rowCount ?? rows.length }
    },
  }
}

/** Drizzle writes the statement and its parameters into the message: payloads, which belong in no log. */
function rethrowCause(error: unknown): never {
  throw error instanceof Error && error.cause instanceof Error ? error.cause : error
}

interface Prebuilt {
  getSQL(): { toQuery(): { readonly sql: string; readonly params: readonly SqlValue[] } }
}

/** Drizzle builds text and parameters from a tree of chunks; ours is built already. */
function prebuilt(text: string, values: readonly SqlValue[]): Prebuilt {
  return { getSQL: () => ({ toQuery: () => ({ sql: text, params: values }) }) }
}
