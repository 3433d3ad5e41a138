/**
 * Knex as a `Database` (from a knex instance) or as a `Tx` (from a transaction).
 *
 * Our statements go straight to the `pg` connection that Knex holds. `knex.raw` would read every `?` as a placeholder,
 * also inside quotes and in operators, and there is no way to escape one behind a backslash.
 */
import { systemClock } from '../../core/service/clock.ts'
import { unlessLate } from '../../core/service/abort.ts'
import { isCleanAfter, isOfNoUse, throwAway, unlessGivenUp, type PgClient } from './borrow-client.ts'
import type { Database, Isolation, Queryable, QueryResult, Tx } from '../query/database.ts'
import { enter, leave, nestedTransaction, refusal, type Gate } from '../transaction/gate.ts'
import { guardPgClient } from './from-pg.ts'
import { notUnderWay, ormDatabase, ormTx, wrongHandle } from './orm-database.ts'
import type { SqlValue } from '../query/sql.ts'

/** The part of a knex transaction we use. */
export interface KnexTransaction {
  readonly client: unknown
  isCompleted(): boolean
}

/** The part of a knex instance we use. */
export interface KnexDatabase<Native> {
  readonly client: unknown
  transaction<Result>(
    work: (trx: Native) => Promise<Result>,
    config?: { isolationLevel?: Isolation; connection?: unknown },
  ): Promise<Result>
}

/** A knex instance becomes a database; a transaction of it becomes that transaction. */
export function fromKnex<Native extends KnexTransaction>(trx: Native): Tx<Native>
export function fromKnex<Native extends KnexTransaction>(knex: KnexDatabase<Native>): Database<Native>
export function fromKnex<Native extends KnexTransaction>(handle: Native | KnexDatabase<Native>): Tx<Native> | Database<Native> {
  if ((handle as { client?: Partial<Client> } | undefined)?.client?.dialect !== 'postgresql') {
    throw wrongHandle('fromKnex', 'a knex instance with the client "pg", or the trx of knex.transaction(async (trx) => …)')
  }
  if (isTransaction(handle)) return ormTx(queryableOf(handle), handle, () => assertOpen(handle))
  return ormDatabase<Native>({
    pool: handle.client as Client,
    query: (text, values, { givenUp } = {}) =>
      borrowConnection(handle.client as Client, givenUp, (connection) => queryOn(connection, text, values)),
    begin: ({ isolation, gate, givenUp }, work) =>
      borrowConnection(handle.client as Client, givenUp, (connection) =>
        handle.transaction((trx) => work(guardTransaction(trx, gate)), {
          isolationLevel: isolation,
          connection: guardPgClient(connection, gate),
        }),
      ),
    connection: (trx) => ({
      query: async (text, values) => {
        assertOpen(trx)
        return await queryableOf(trx).query(text, values)
      },
    }),
  })
}

function isTransaction<Native extends KnexTransaction>(handle: Native | KnexDatabase<Native>): handle is Native {
  return (handle as { isTransaction?: boolean }).isTransaction === true
}

function assertOpen(trx: KnexTransaction): void {
  if (trx.isCompleted()) throw notUnderWay('fromKnex', 'It was committed or rolled back. Use its statements before that.')
}

/** Knex's client: of an instance it takes connections from the pool; of a transaction it has only that one. */
interface Client {
  readonly dialect: string
  acquireConnection(): Promise<Connection>
  releaseConnection(connection: Connection): unknown
}

interface Connection extends PgClient {
  /** Knex's pool throws away what has it. */
  __knex__disposed?: unknown
}

/** Knex itself would also give back a connection whose BEGIN or ROLLBACK was never answered, and the next one would be inside it. */
async function borrowConnection<Result>(
  client: Client,
  givenUp: AbortSignal | undefined,
  work: (connection: Connection) => Promise<Result>,
): Promise<Result> {
  const connection = await client.acquireConnection()
  const dispose = (why: unknown): void => {
    connection.__knex__disposed = why
    throwAway(connection)
  }
  try {
    return await unlessGivenUp(
      givenUp,
      () => dispose('given up'),
      () => work(connection),
    )
  } catch (error) {
    if (!isCleanAfter(error, connection) && (isOfNoUse(error) || !(await isRolledBack(connection)))) dispose(error)
    throw error
  } finally {
    await client.releaseConnection(connection)
  }
}

/** Behind a COMMIT that was refused the driver does not know yet that nothing is open. A busy or mute server is not waited for. */
async function isRolledBack(connection: Connection): Promise<boolean> {
  const answered = connection.query('rollback', []).then(
    () => true,
    () => false,
  )
  return (await unlessLate(answered, 2_000, systemClock)) === true
}

interface TransactionClient {
  query(connection: unknown, asked: string | { readonly sql?: string }): Promise<unknown>
  stream(connection: unknown, asked: string | { readonly sql?: string }, ...rest: unknown[]): Promise<unknown>
  transaction(work: (nested: KnexTransaction) => unknown, ...rest: unknown[]): PromiseLike<unknown>
}

/**
 * The client of a transaction is there for it only, and nested ones have their own; the statements of all go through one connection.
 * Knex itself would refuse what comes too late, and nobody would be told.
 */
function guardTransaction<Native extends KnexTransaction>(trx: Native, gate: Gate): Native {
  const client = trx.client as TransactionClient
  for (const way of ['query', 'stream'] as const) {
    const send = client[way]
    client[way] = (connection, asked, ...rest) => {
      const refused = refusal(gate, typeof asked === 'string' ? asked : asked.sql)
      return refused === undefined ? send.call(client, connection, asked, ...rest) : Promise.reject(refused)
    }
  }
  const nest = client.transaction.bind(client)
  client.transaction = (work, ...rest) => {
    const refused = refusal(gate, nestedTransaction)
    if (refused !== undefined) throw refused
    const operation = enter(gate, nestedTransaction)
    const done = (): void => leave(gate, operation)
    const nested = nest((inner) => work(guardTransaction(inner, gate)), ...rest)
    nested.then(done, done)
    return nested
  }
  return trx
}

function queryableOf(handle: { readonly client: unknown }): Queryable {
  const client = handle.client as Client
  return {
    query: async (text, values): Promise<QueryResult> => {
      const connection = await client.acquireConnection()
      try {
        return await queryOn(connection, text, values)
      } finally {
        await client.releaseConnection(connection)
      }
    },
  }
}

async function queryOn(connection: Connection, text: string, values: readonly SqlValue[] | undefined): Promise<QueryResult> {
  const { rows, rowCount } = (await connection.query(text, [...(values ?? [])])) as { rows: unknown[]; rowCount: number | null }
  return { rows, rowCount: rowCount ?? 0 }
}
