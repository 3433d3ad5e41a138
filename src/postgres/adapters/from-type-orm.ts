/**
 * TypeORM as a `Database` (from a DataSource) or as a `Tx` (from the EntityManager or QueryRunner of a transaction).
 *
 * Statements go through the query runner with the structured result, the only one that tells rows and count apart.
 *
 * The end is ours: TypeORM would give a connection back inside an open transaction when its ROLLBACK fails, or goes only as far as
 * a nested transaction. Subscribers to the end are called as ever. Before COMMIT and ROLLBACK they may send statements; after
 * COMMIT these are refused, and a failure there changes nothing about what is committed.
 */
import type { Database, Isolation, Queryable, Tx } from '../query/database.ts'
import { throwAway, unlessGivenUp, type PgClient } from './borrow-client.ts'
import { endedTransaction, isEnd, nestedUnderWay, refusal, shut, type Gate } from '../transaction/gate.ts'
import { guardPgClient, isEnding } from './from-pg.ts'
import { notUnderWay, ormDatabase, ormTx, wrongHandle, type Begin } from './orm-database.ts'
import { endedByItself } from '../transaction/tx-scope.ts'

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

/** The part of a query runner that a transaction of ours needs. */
export interface TypeOrmTransactionRunner<Native> extends TypeOrmQueryRunner {
  readonly manager: Native
  connect(): Promise<unknown>
  startTransaction(isolation: Uppercase<Isolation>): Promise<void>
  commitTransaction(): Promise<void>
  rollbackTransaction(): Promise<void>
}

/** The part of a data source we use. */
export interface TypeOrmDataSource<Native> {
  createQueryRunner(): TypeOrmTransactionRunner<Native>
  readonly driver?: unknown
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
  const runnerOf = (): TypeOrmTransactionRunner<Native> => {
    keepHearing(dataSource)
    return dataSource.createQueryRunner()
  }
  return ormDatabase<Native>({
    pool: dataSource,
    query: async (text, values, { givenUp } = {}) => {
      const runner = runnerOf()
      try {
        return await closedIfGivenUp(runner, givenUp, () => queryableOf(runner).query(text, values))
      } finally {
        await runner.release()
      }
    },
    begin: async (how, work) => {
      const runner = runnerOf() as Runner<Native>
      const release = runner.release.bind(runner)
      try {
        return await closedIfGivenUp(runner, how.givenUp, () => runOn(runner, how, work))
      } finally {
        how.gate.state = 'over'
        await release()
      }
    },
    connection: (manager) => queryableOf(activeRunner(manager)),
    hasHooks: true,
  })
}

interface MasterPool {
  on(event: 'connect', listener: (client: { on(event: 'error', listener: () => void): unknown }) => void): unknown
}

const heard = new WeakSet<MasterPool>()

/**
 * TypeORM awaits a client before it listens to it. One that breaks as it is handed out would end the process, so each has a listener
 * of ours from its first moment. The pool is another after the data source was initialised again.
 */
function keepHearing({ driver }: { readonly driver?: unknown }): void {
  const { master } = (driver ?? {}) as { master?: MasterPool }
  if (master === undefined || heard.has(master)) return
  heard.add(master)
  master.on('connect', (client) => client.on('error', () => undefined))
}

/** Closes the runner's connection when nobody waits for the work any more. */
async function closedIfGivenUp<Result>(
  runner: Pick<TypeOrmTransactionRunner<unknown>, 'connect'>,
  givenUp: AbortSignal | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  const client = (await runner.connect()) as PgClient
  return await unlessGivenUp(givenUp, () => throwAway(client), work)
}

/** What TypeORM keeps to itself. */
interface Runner<Native> extends TypeOrmTransactionRunner<Native> {
  databaseConnection: PgClient
  /** 1 in a transaction, one more in each that is nested in it. */
  transactionDepth: number
}

/** The runner is there for this transaction only; its connection is behind the gate from the start. */
async function runOn<Native, Result>(
  runner: Runner<Native>,
  { isolation, gate }: Begin,
  work: (native: Native) => Promise<Result>,
): Promise<Result> {
  const client = (await runner.connect()) as PgClient
  const end: End = {}
  const release = runner.release.bind(runner)
  runner.databaseConnection = guardEnd(client, gate, end)
  tellLate(runner, gate)
  // Whoever releases it early, the closure or a data source that is destroyed, must not hand out the transaction with it.
  runner.release = async () => {
    end.due = 'rollback'
    await endRaw(client, gate, end)
    await release()
  }
  try {
    await runner.startTransaction(isolation.toUpperCase() as Uppercase<Isolation>)
    const result = await work(runner.manager)
    if (runner.transactionDepth < 1) throw endedByItself()
    if (runner.transactionDepth === 1) await commit(runner, end)
    if (end.answered !== 'commit') throw nestedUnderWay()
    return result
  } catch (error) {
    await rollBack(runner, { client, gate, end })
    throw error
  }
}

/** What comes after the release does not reach the client: TypeORM refuses it, and nobody would be told. */
function tellLate(runner: TypeOrmQueryRunner, gate: Gate): void {
  const query = runner.query.bind(runner)
  runner.query = async (text, ...rest) => {
    const refused = runner.isReleased ? refusal(gate, text) : undefined
    if (refused !== undefined) throw refused
    return await query(text, ...rest)
  }
}

/** What is left to do, and what the server has answered. */
interface End {
  due?: 'commit' | 'rollback'
  answered?: 'commit' | 'rollback'
}

async function commit(runner: Runner<unknown>, end: End): Promise<void> {
  end.due = 'commit'
  try {
    await runner.commitTransaction()
  } catch (error) {
    // Else it was a subscriber, who can change nothing any more.
    if (end.answered !== 'commit') throw error
  }
}

/** Ends everything, nested transactions too. A connection on which that fails is not used again. */
async function rollBack(
  runner: Runner<unknown>,
  { client, gate, end }: { readonly client: PgClient; readonly gate: Gate; readonly end: End },
): Promise<void> {
  end.due = 'rollback'
  runner.transactionDepth = 1
  await runner.rollbackTransaction().catch(() => undefined)
  // A connection that broke is out of TypeORM's hands by now, and one that was released early has ended.
  if (!runner.isReleased) await endRaw(client, gate, end)
}

/** Where TypeORM did not send it, because a subscriber failed or a nested transaction was in between. */
async function endRaw(client: PgClient, gate: Gate, end: End): Promise<void> {
  // Before ROLLBACK: a statement behind that would commit by itself.
  await shut(gate)
  if (end.answered !== undefined) return
  end.answered = 'rollback'
  await client.query('ROLLBACK').catch(() => throwAway(client))
}

/**
 * The client, behind the gate. That is shut when the end comes by here, when the hooks before it have had their say. With the depth
 * set back, TypeORM would take the end of a nested transaction for that of all: it can only be the one that is due.
 */
function guardEnd(client: PgClient, gate: Gate, end: End): PgClient {
  const guarded = guardPgClient(client, gate)
  const finish = async (due: 'commit' | 'rollback', text: string): Promise<unknown> => {
    if (!text.toLowerCase().startsWith(due)) throw endedTransaction()
    await (due === 'commit' ? gate.beforeCommit?.() : shut(gate))
    if (end.due !== due || end.answered !== undefined || gate.state === 'over') throw endedTransaction()
    const answer = await client.query(text)
    end.answered = due
    return answer
  }
  const query = (...asked: Parameters<PgClient['query']>): unknown =>
    end.due !== undefined && isEnd(asked[0]) ? finish(end.due, asked[0]) : guarded.query(...asked)
  return new Proxy(guarded, { get: (target, key) => (key === 'query' ? query : Reflect.get(target, key)) })
}

function activeRunner(handle: TypeOrmManager | TypeOrmQueryRunner): TypeOrmQueryRunner {
  const runner = 'isTransactionActive' in handle ? handle : handle.queryRunner
  const { databaseConnection: client } = (runner ?? {}) as { databaseConnection?: PgClient }
  const isEnded = client !== undefined && isEnding(client)
  if (runner?.isTransactionActive === true && !runner.isReleased && !isEnded) return runner
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
