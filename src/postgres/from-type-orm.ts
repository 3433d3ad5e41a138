/**
 * TypeORM as a `Database` (from a DataSource) or as a `Tx` (from the EntityManager or QueryRunner of a transaction).
 *
 * Statements go through the query runner with the structured result, the only one that tells rows and count apart.
 */
import type { Database, Isolation, Queryable, Tx } from './database.ts'
import type { PgClient } from './borrow-client.ts'
import type { Gate } from './gate.ts'
import { guardPgClient } from './guard-pg-client.ts'
import { notUnderWay, ormDatabase, ormTx, wrongHandle } from './orm-database.ts'

/** The part of a query runner we use. */
export interface TypeOrmQueryRunner {
  query(
    text: string,
    values: unknown[] | undefined,
    useStructuredResult: true,
  ): Promise<{ records: unknown[]; affected?: number | null }>
  release(): Promise<void>
  readonly isTransactionActive: boolean
  readonly isReleased: boolean
}

/** The part of an entity manager we use. */
export interface TypeOrmManager {
  readonly queryRunner?: TypeOrmQueryRunner | undefined
  // Every manager has it: without it a handle of any kind would fit.
  getRepository(target: never): unknown
}

/** The part of a data source we use. */
export interface TypeOrmDataSource<Native> {
  transaction<Result>(isolation: Uppercase<Isolation>, work: (manager: Native) => Promise<Result>): Promise<Result>
  createQueryRunner(): TypeOrmQueryRunner
}

/** A DataSource becomes a database; the manager or query runner of a transaction becomes that transaction. */
export function fromTypeOrm<Native extends TypeOrmManager>(dataSource: TypeOrmDataSource<Native>): Database<Native>
export function fromTypeOrm<Native extends TypeOrmQueryRunner | TypeOrmManager>(transaction: Native): Tx<Native>
export function fromTypeOrm<Native extends TypeOrmManager>(
  handle: TypeOrmDataSource<Native> | TypeOrmManager | TypeOrmQueryRunner,
): Database<Native> | Tx<TypeOrmManager | TypeOrmQueryRunner> {
  if (handle === null || typeof handle !== 'object') throw unexpected()
  if ('createQueryRunner' in handle) return fromDataSource(handle)
  if (!('isTransactionActive' in handle) && !('queryRunner' in handle || 'getRepository' in handle)) throw unexpected()
  return ormTx(
    { query: (text, values) => queryableOf(activeRunner(handle)).query(text, values) },
    handle,
    () => void activeRunner(handle),
  )
}

function fromDataSource<Native extends TypeOrmManager>(dataSource: TypeOrmDataSource<Native>): Database<Native> {
  return ormDatabase<Native>({
    query: async (text, values) => {
      const runner = dataSource.createQueryRunner()
      try {
        return await queryableOf(runner).query(text, values)
      } finally {
        await runner.release()
      }
    },
    begin: ({ isolation, gate }, work) =>
      dataSource.transaction(isolation.toUpperCase() as Uppercase<Isolation>, (manager) => {
        guardRunner(activeRunner(manager), gate)
        return work(manager)
      }),
    connection: (manager) => queryableOf(activeRunner(manager)),
  })
}

/** The runner is there for this transaction only. It ends it through the same client, and refuses statements only after that. */
function guardRunner(runner: TypeOrmQueryRunner & { databaseConnection?: PgClient }, gate: Gate): void {
  const { databaseConnection } = runner
  if (databaseConnection !== undefined) runner.databaseConnection = guardPgClient(databaseConnection, gate)
}

function activeRunner(handle: TypeOrmManager | TypeOrmQueryRunner): TypeOrmQueryRunner {
  const runner = 'isTransactionActive' in handle ? handle : handle.queryRunner
  if (runner?.isTransactionActive === true && !runner.isReleased) return runner
  throw notUnderWay(
    'fromTypeOrm',
    'Pass the manager that dataSource.transaction(async (manager) => …) gives you, or a QueryRunner after startTransaction().',
  )
}

function queryableOf(runner: TypeOrmQueryRunner): Queryable {
  return {
    query: async (text, values) => {
      const { records, affected } = await runner.query(text, values === undefined ? undefined : [...values], true)
      return { rows: records, rowCount: affected ?? records.length }
    },
  }
}

function unexpected(): Error {
  return wrongHandle('fromTypeOrm', 'a DataSource, or the EntityManager or QueryRunner of a transaction under way')
}
