/**
 * Kysely as a `Database` (from a Kysely instance) or as a `Tx` (from a Transaction).
 *
 * Our statements run without the instance's plugins, which may rename columns in results. Kysely leaves a pooled `pg`
 * client without an error listener while it is in use, so give the pool one, or a connection that breaks meanwhile, or as it is
 * handed out, ends the process: `pool.on('connect', (client) => client.on('error', report))`.
 */
import type { Database, Isolation, Queryable, Tx } from '../query/database.ts'
import { enter, inLine, isEnd, leave, passOn, refusal, inTurn, type Gate } from '../transaction/gate.ts'
import { ormDatabase, ormTx, wrongHandle, type Begin } from './orm-database.ts'
import { isUnanswered } from '../query/sql-state.ts'

/** The part of a Kysely instance that runs statements. */
export interface KyselyExecutor {
  // Written as methods that take `never`: Kysely's own types are then fine, whichever database they describe.
  executeQuery(query: never): Promise<{ readonly rows: readonly unknown[]; readonly numAffectedRows?: bigint }>
  withoutPlugins(): unknown
  readonly isTransaction: boolean
}

/** The part of a Kysely transaction we use. */
export interface KyselyTransaction extends KyselyExecutor {
  readonly isTransaction: true
}

interface Builder<Native> {
  setIsolationLevel(isolation: Isolation): Builder<Native>
  execute<Result>(work: (native: Native) => Promise<Result>): Promise<Result>
}

/** The part of a Kysely instance we use. */
export interface KyselyDatabase<Native> extends KyselyExecutor {
  transaction(): Builder<Native>
  connection(): unknown
}

interface ConnectionBuilder<Native> {
  execute<Result>(work: (one: KyselyDatabase<Native>) => Promise<Result>): Promise<Result>
}

/** A Kysely instance becomes a database; a transaction of it becomes that transaction. */
export function fromKysely<Native extends KyselyTransaction>(trx: Native): Tx<Native>
export function fromKysely<Native extends KyselyTransaction>(db: KyselyDatabase<Native>): Database<Native>
export function fromKysely<Native extends KyselyTransaction>(
  handle: Native | KyselyDatabase<Native>,
): Tx<Native> | Database<Native> {
  if (typeof (handle as Partial<KyselyExecutor> | undefined)?.executeQuery !== 'function') {
    throw wrongHandle('fromKysely', 'a Kysely instance, or the transaction of db.transaction().execute(async (trx) => …)')
  }
  if (isTransaction(handle)) return ormTx(queryableOf(handle), handle)
  return ormDatabase<Native>({
    pool: handle,
    ...queryableOf(handle),
    begin: (how, work) => begin(handle, how, work),
    connection: queryableOf,
  })
}

/** On a connection of our own: Kysely would give it back although the server may still be about to begin, or has not rolled back. */
async function begin<Native extends KyselyTransaction, Result>(
  db: KyselyDatabase<Native>,
  { isolation, gate, untilAnswered }: Begin,
  work: (native: Native) => Promise<Result>,
): Promise<Result> {
  const borrowed = db.connection() as ConnectionBuilder<Native>
  return await borrowed.execute(async (one) => {
    try {
      return await one
        .transaction()
        .setIsolationLevel(isolation)
        .execute(async (trx) => {
          await guardConnection(trx, gate)
          return await work(trx)
        })
    } catch (error) {
      // Of BEGIN or of ROLLBACK.
      if (isUnanswered(error)) await untilAnswered(() => queryableOf(one).query('rollback'), error)
      throw error
    }
  })
}

function isTransaction<Native extends KyselyTransaction>(handle: Native | KyselyDatabase<Native>): handle is Native {
  return handle.isTransaction
}

function queryableOf(handle: KyselyExecutor): Queryable {
  const plain = handle.withoutPlugins() as {
    executeQuery(query: CompiledQuery): ReturnType<KyselyExecutor['executeQuery']>
  }
  return {
    query: async (text, values) => {
      const { rows, numAffectedRows } = await plain.executeQuery(compiled(text, values ?? []))
      return { rows, rowCount: numAffectedRows === undefined ? rows.length : Number(numAffectedRows) }
    },
  }
}

interface ConnectionProvider {
  provideConnection<Result>(work: (connection: Connection) => Promise<Result>): Promise<Result>
}

/** Kysely's own connection, which it keeps for as long as the client lives. */
interface Connection {
  executeQuery: (query: { readonly sql: string }, ...rest: unknown[]) => Promise<unknown>
  streamQuery: (query: { readonly sql: string }, ...rest: unknown[]) => AsyncGenerator<unknown>
}

/**
 * Puts the gate before the connection until Kysely has ended the transaction. Kysely refuses statements only after the answer to
 * its COMMIT or ROLLBACK; those that come before that, or were waiting for their turn, would run behind it.
 */
async function guardConnection(trx: KyselyExecutor, gate: Gate): Promise<void> {
  const connection = await connectionOf(trx)
  const { executeQuery, streamQuery } = connection
  const takeAway = (): void => void Object.assign(connection, { executeQuery, streamQuery })
  const guarded: Connection = {
    executeQuery: (query, ...rest) => {
      const answer = inLine(gate, query.sql, () => executeQuery.call(connection, query, ...rest))
      return gate.state === 'ending' && isEnd(query.sql) ? answer.finally(takeAway) : answer
    },
    streamQuery: (query, ...rest) => streamInLine(gate, query.sql, () => streamQuery.call(connection, query, ...rest)),
  }
  Object.assign(connection, guarded)
  tellLate(trx, gate)
}

interface Executor extends ConnectionProvider {
  executeQuery: (query: { readonly sql: string }) => Promise<unknown>
  stream: (query: { readonly sql: string }, chunkSize: number) => unknown
}

/** What comes after the answer to the end does not reach the connection: Kysely refuses it, and nobody would be told. */
function tellLate(trx: KyselyExecutor, gate: Gate): void {
  const executor = executorOf(trx)
  const { executeQuery, stream } = executor
  executor.executeQuery = async (query) => {
    const refused = gate.state === 'over' ? refusal(gate, query.sql) : undefined
    if (refused !== undefined) throw refused
    return await executeQuery.call(executor, query)
  }
  executor.stream = (query, chunkSize) => {
    const refused = gate.state === 'over' ? refusal(gate, query.sql) : undefined
    if (refused !== undefined) throw refused
    return stream.call(executor, query, chunkSize)
  }
}

function executorOf(trx: KyselyExecutor): Executor {
  return (trx as unknown as { getExecutor(): Executor }).getExecutor()
}

/** A stream has the connection until it is read to its end or closed. */
async function* streamInLine(gate: Gate, text: string, open: () => AsyncGenerator<unknown>): AsyncGenerator<unknown> {
  const refused = refusal(gate, text)
  if (refused !== undefined) throw refused
  const operation = enter(gate, text)
  let isDone = false
  const done = (): void => {
    if (isDone) return
    isDone = true
    leave(gate, operation)
    passOn(gate)
  }
  await new Promise<void>((resolve) => inTurn(gate, resolve))
  try {
    const late = refusal(gate, text)
    if (late !== undefined) throw late
    const rows = open()
    operation.close = () => void rows.return(undefined).then(done, done)
    yield* rows
  } finally {
    done()
  }
}

async function connectionOf(trx: KyselyExecutor): Promise<Connection> {
  return await executorOf(trx).provideConnection(async (connection) => connection)
}

interface CompiledQuery {
  readonly sql: string
  readonly parameters: readonly unknown[]
  readonly query: { readonly kind: 'RawNode'; readonly sqlFragments: readonly string[]; readonly parameters: readonly [] }
  readonly queryId: { readonly queryId: string }
}

/** What `CompiledQuery.raw` makes; the text has its own `$1…`, so nothing is compiled. */
function compiled(text: string, values: readonly unknown[]): CompiledQuery {
  return {
    sql: text,
    parameters: values,
    query: { kind: 'RawNode', sqlFragments: [text], parameters: [] },
    queryId: { queryId: 'waybill' },
  }
}
