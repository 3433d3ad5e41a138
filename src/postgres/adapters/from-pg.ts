/**
 * node-postgres as a `Database` (from a pool) or as a `Tx` (from a client inside the user's own transaction).
 *
 * One round trip begins the transaction, sets its time-outs and learns its id (where the session's `synchronous_commit` is off, a
 * second one raises it). The COMMIT tag is read: the server answers
 * COMMIT of a failed transaction with ROLLBACK and no error. A client that may be broken never goes back to the pool.
 *
 * Clients come from the application's own `pg`. One before 8.21 does not say whether it is inside a transaction: then the server
 * is asked, with a round trip of its own.
 *
 * The native client of a transaction is the client itself, but for `release`, which is left to the borrower, and for statements: those
 * are sent one after the other, counted until they are answered, and refused after the end, each in the way that it was sent: by a
 * promise, by a callback, or by the cursor or stream that was submitted.
 */
import { systemClock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { unlessLate } from '../../core/service/abort.ts'
import { borrowClient, isOfNoUse, throwAway, type PgClient, type PgPool, type PgPoolClient } from './borrow-client.ts'
import {
  connections,
  type BeginOptions,
  type Database,
  type QueryResult,
  type StatementOptions,
  type Tx,
} from '../query/database.ts'
import { assertSettled, inLine, openGate, shut, type Gate, enter, inTurn, leave, passOn, refusal } from '../transaction/gate.ts'
import { isAbortedTransaction, isConnectionLoss, isOutsideTransaction, sqlState } from '../query/sql-state.ts'
import { sql, type SqlValue } from '../query/sql.ts'
import {
  assertUnderWay,
  beginning,
  begunColumns,
  commitFailure,
  endedByItself,
  keepDurable,
  longestEndMs,
  openTx,
  transactionAborted,
  type Begun,
  type TransactionId,
} from '../transaction/tx-scope.ts'

/** What a pool hands out, with the driver's own type where it can be told. */
export type PgClientOf<Pool> = Pool extends { connect: { (): Promise<infer Client>; (...args: never[]): unknown } }
  ? Client extends PgPoolClient
    ? Client
    : PgPoolClient
  : PgPoolClient

/** A pool becomes a database; a client inside a transaction becomes that transaction. */
export function fromPg<Pool extends PgPool>(pool: Pool): Database<PgClientOf<Pool>>
export function fromPg<Client extends PgClient>(client: Client): Tx<Client>
export function fromPg(handle: PgPool | PgClient): Database<PgPoolClient> | Tx<PgClient> {
  if (typeof (handle as Partial<PgClient> | undefined)?.query !== 'function') {
    throw new WaybillError(
      'INVALID_OPTION',
      'fromPg(handle): expected a Pool of node-postgres, or a Client inside a transaction.',
    )
  }
  return 'totalCount' in handle ? fromPool(handle) : fromClient(handle)
}

function fromPool(pool: PgPool): Database<PgPoolClient> {
  return {
    [connections]: pool,
    query: async (text, values, { givenUp }: StatementOptions = {}) => {
      if (givenUp === undefined) return await ask(pool, text, values)
      return await borrowClient(pool, givenUp, async (client, clean) => {
        const result = await ask(client, text, values)
        clean()
        return result
      })
    },
    attempt: (options, work) =>
      borrowClient(pool, options.givenUp, (client, clean) => attemptOn({ client, clean, options }, work)),
  }
}

interface Attempt {
  readonly client: PgPoolClient
  readonly clean: () => void
  readonly options: BeginOptions
}

async function attemptOn<Result>(
  { client, clean, options }: Attempt,
  work: (tx: Tx<PgPoolClient>) => Promise<Result>,
): Promise<Result> {
  const gate = openGate(options.signals)
  // In one line with the statements of the native client.
  const query: Tx['query'] = (text, values) => inLine(gate, text, () => ask(client, text, values))
  const tx = openTx(query, guardPgClient(client, gate), gate)
  let begun: TransactionId | undefined
  let result: Result
  try {
    begun = gate.id = await begin(client, options)
    result = await work(tx)
    assertSettled(gate)
    gate.state = 'over'
    await assertNotEnded(client, begun)
  } catch (error) {
    gate.hasFailed = true
    gate.state = 'over'
    await rollBack(client, { error, clean, gate, options })
    throw error
  }
  const tag = await commit(client, begun)
  clean()
  if (tag !== 'COMMIT') throw transactionAborted()
  return result

  async function commit(on: PgClient, id: TransactionId | undefined): Promise<string> {
    try {
      return toTag(await on.query('commit'))
    } catch (error) {
      const failure = commitFailure(error, id)
      // The server answered, so the transaction is over and the client is as good as before.
      if (failure === error && sqlState(error) !== undefined && !isConnectionLoss(error)) clean()
      throw failure
    }
  }
}

/**
 * The closure's error is the one to report; a client that cannot even roll back, that leads to a replica, or whose server is silent for
 * longer than the statement before may take, is thrown away.
 */
async function rollBack(
  client: PgClient,
  { error, clean, gate, options }: Pick<Attempt, 'clean' | 'options'> & { readonly error: unknown; readonly gate: Gate },
): Promise<void> {
  if (isOfNoUse(error)) return
  await shut(gate)
  const answered = client.query('rollback').then(
    () => clean(),
    () => undefined,
  )
  if (
    (await unlessLate(
      answered.then(() => true),
      longestEndMs(options, gate),
      systemClock,
    )) === undefined
  )
    throwAway(client)
}

/** Five statements, one message: the numbers were checked by the options resolver, so they can stand in the text. */
async function begin(client: PgClient, options: BeginOptions): Promise<TransactionId | undefined> {
  const isReading = options.readOnly === true
  const first = client.query(
    `begin isolation level ${options.isolation}${isReading ? ' read only' : ''};
     set local statement_timeout = ${options.statementTimeoutMs};
     set local lock_timeout = ${options.lockTimeoutMs};
     set local idle_in_transaction_session_timeout = ${options.idleInTransactionTimeoutMs};
     ${options.synchronousCommit === 'off' ? 'set local synchronous_commit = off;' : ''}
     ${isReading ? '' : askBegun}`,
  )
  const results = await beginning(first)
  if (isReading) return undefined
  const last = Array.isArray(results) ? (results.at(-1) as { rows?: Begun[] }) : undefined
  const begun = last?.rows?.[0]
  if (begun?.xid === undefined) throw new WaybillError('INTERNAL', 'BEGIN returned no transaction id.')
  await keepDurable(begun, options, (text) => client.query(text))
  return begun
}

const askBegun = sql`select ${begunColumns}`.text

/** The closure may have sent COMMIT or ROLLBACK, and then its later statements stood for themselves. */
async function assertNotEnded(client: PgClient, id: TransactionId | undefined): Promise<void> {
  if (client.getTransactionStatus === undefined) await assertUnderWay({ query: (text, values) => ask(client, text, values) }, id)
  else if (client.getTransactionStatus() === 'I') throw endedByItself()
}

function fromClient(client: PgClient): Tx<PgClient> {
  assertInTransaction(client)
  return openTx(async (text, values) => {
    assertInTransaction(client)
    if (client.getTransactionStatus === undefined) await askInTransaction(client)
    return await ask(client, text, values)
  }, client)
}

/** `T` is a transaction under way, `E` a failed one (its next statement fails by itself), `I` none. Behind COMMIT it is `T` until the answer. */
function assertInTransaction(client: PgClient): void {
  if (isEnding(client)) throw notInTransaction()
  const status = client.getTransactionStatus?.()
  if (status === 'T' || status === 'E' || client.getTransactionStatus === undefined) return
  throw notInTransaction()
}

/**
 * Only in a transaction does the server take a savepoint, in one that is read only too, and nothing is left of it. Asked before each
 * statement: the transaction may have ended since the last.
 */
async function askInTransaction(client: PgClient): Promise<void> {
  try {
    await client.query('savepoint waybill; release savepoint waybill')
  } catch (error) {
    if (isOutsideTransaction(error)) throw notInTransaction(error)
    // Of a failed one the next statement fails by itself, unless it ends it.
    if (!isAbortedTransaction(error)) throw error
  }
}

function notInTransaction(cause?: unknown): WaybillError {
  return new WaybillError(
    'NOT_A_TRANSACTION',
    'fromPg(client): this client is not inside a transaction, or its COMMIT was sent. Send BEGIN first, or use transaction(fromPg(pool), …).',
    { cause },
  )
}

async function ask(client: Pick<PgClient, 'query'>, text: string, values?: readonly SqlValue[]): Promise<QueryResult> {
  const { rows, rowCount } = (await client.query(text, values && [...values])) as { rows?: unknown[]; rowCount?: number | null }
  return { rows: rows ?? [], rowCount: rowCount ?? 0 }
}

function toTag(result: unknown): string {
  return (result as { command?: string }).command ?? ''
}

/** The client, behind the gate. */
export function guardPgClient<Client extends PgClient>(client: Client, gate: Gate): Client {
  const query = (...asked: Parameters<PgClient['query']>): unknown => {
    const [first, ...rest] = asked as readonly unknown[]
    if (isSubmittable(first)) return submit(client, gate, first, rest)
    const own = (first as { readonly callback?: unknown } | null)?.callback
    const callback = rest.find((each) => typeof each === 'function') ?? own
    if (typeof callback === 'function') return sendWithCallback(client, gate, asked, callback as Callback)
    return inLine(gate, textOf(first), () => client.query(...asked))
  }
  return new Proxy(client, {
    get: (target, key) => (key === 'query' ? query : key === 'release' ? refuseRelease : Reflect.get(target, key)),
  })
}

/** What node-postgres has sent and has still to send, as its releases name it. */
interface Queues {
  readonly _activeQuery?: unknown
  readonly _queryQueue?: readonly unknown[]
  readonly _sentQueryQueue?: readonly unknown[]
  readonly activeQuery?: unknown
  readonly queryQueue?: readonly unknown[]
}

const endsTransaction = /^\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!(?:\s+(?:work|transaction))?\s+to\b))\b/i

/** Whether what ends the transaction was given to the client, so that a statement now would come behind it. */
export function isEnding(client: object): boolean {
  const { _activeQuery, _queryQueue, _sentQueryQueue } = client as Queues
  // The older names warn where there are newer ones.
  const { activeQuery, queryQueue } = (_queryQueue === undefined ? client : {}) as Queues
  const given = [_activeQuery, activeQuery, ...(_sentQueryQueue ?? []), ...(_queryQueue ?? queryQueue ?? [])]
  return given.some((each) => endsTransaction.test(String(textOf(each ?? null))))
}

/** Inside of the transaction somebody else would go on with it; after it the client may serve somebody else. */
function refuseRelease(): never {
  throw new WaybillError(
    'NOT_A_TRANSACTION',
    'tx.native.release(): transaction() gives its connection back by itself, when it has ended. Leave the call out.',
  )
}

type Callback = (error: unknown, ...rest: unknown[]) => unknown
type Send = (...asked: readonly unknown[]) => unknown

function textOf(asked: unknown): unknown {
  return typeof asked === 'string' ? asked : (asked as { readonly text?: unknown } | null)?.text
}

/** Sends in turn what does not answer by a promise. `refuse` says how it hears that it came too late. */
function sendInTurn(
  gate: Gate,
  text: unknown,
  { send, refuse, close }: { send: (answered: () => void) => void; refuse: (error: Error) => void; close?: () => void },
): void {
  const refused = refusal(gate, text)
  if (refused !== undefined) return queueMicrotask(() => refuse(refused))
  const operation = enter(gate, text)
  let isDone = false
  const answered = (): void => {
    if (isDone) return
    isDone = true
    leave(gate, operation)
    passOn(gate)
  }
  inTurn(gate, () => {
    const late = refusal(gate, text)
    if (late !== undefined) {
      answered()
      return refuse(late)
    }
    if (close !== undefined) operation.close = close
    try {
      return send(answered)
    } catch (error) {
      answered()
      throw error
    }
  })
}

function sendWithCallback(client: PgClient, gate: Gate, asked: readonly unknown[], callback: Callback): void {
  const [first, ...rest] = asked
  sendInTurn(gate, textOf(first), {
    send: (answered) => {
      const told: Callback = (...answer) => {
        answered()
        return callback(...answer)
      }
      const values = rest.filter((each) => typeof each !== 'function')
      const query: Send = client.query.bind(client) as Send
      query(typeof first === 'string' ? first : { ...(first as object), callback: undefined }, ...values, told)
    },
    refuse: (error) => void callback(error),
  })
}

/** What `pg` calls a submittable: a query object, a cursor or a stream. Its connection is its own until the server is ready again. */
interface Submittable {
  readonly text?: unknown
  submit(...args: unknown[]): unknown
  handleReadyForQuery: (...args: unknown[]) => unknown
  handleError: (error: unknown, ...rest: unknown[]) => unknown
  close?(): unknown
  destroy?(): unknown
}

function isSubmittable(asked: unknown): asked is Submittable {
  return typeof (asked as Partial<Submittable> | null)?.submit === 'function'
}

function submit(client: PgClient, gate: Gate, query: Submittable, rest: readonly unknown[]): Submittable {
  const { handleReadyForQuery, handleError } = query
  const text = query.text ?? (query as { readonly cursor?: Submittable }).cursor?.text ?? 'a cursor'
  sendInTurn(gate, text, {
    send: (answered) => {
      query.handleReadyForQuery = (...args) => {
        answered()
        return handleReadyForQuery.apply(query, args)
      }
      query.handleError = (...args) => {
        answered()
        return handleError.apply(query, args)
      }
      const send: Send = client.query.bind(client) as Send
      send(query, ...rest)
    },
    refuse: (error) => void handleError.call(query, error),
    close: () => void closeQuietly(query),
  })
  return query
}

/** Behind a cursor that nobody closed no ROLLBACK would be answered. */
async function closeQuietly(query: Submittable): Promise<void> {
  try {
    await (query.close?.() ?? query.destroy?.())
  } catch {
    // Then the connection is thrown away, because its ROLLBACK is not answered.
  }
}
