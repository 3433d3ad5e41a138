/**
 * Takes a client out of a node-postgres pool for one piece of work, and gives back only what others can use.
 *
 * The work says whether it left the client clean: no transaction open, no answer outstanding. If it cannot say so, the
 * connection is closed, and the server rolls back whatever was open on it. A connection that breaks while it is out
 * never ends the process.
 */
import { WaybillError } from '../../core/errors.ts'
import { isConnectionLoss, isReadOnly } from '../query/sql-state.ts'

/** The part of a `pg` client we use. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<unknown>
  /** Of pg 8.21 and later: what the server said last about the transaction. */
  getTransactionStatus?(): string | null
  end?(): Promise<void>
  /** What the client talks through; one over libpq has none. */
  readonly connection?: { readonly stream?: { destroy(): unknown } }
}

/** The part of a client that a `pg` pool hands out. */
export interface PgPoolClient extends PgClient {
  release(error?: Error | boolean): void
  on(event: 'error', listener: (error: Error) => void): unknown
  removeListener(event: 'error', listener: (error: Error) => void): unknown
}

/** The part of a `pg` pool we use. */
export interface PgPool {
  connect(callback: (error: Error | undefined, client: PgPoolClient | undefined) => void): void
  query(text: string, values?: unknown[]): Promise<unknown>
  readonly totalCount: number
}

/**
 * Closes a connection that a library will give back, although it may be inside a transaction: every pool throws it away then. At
 * once: a client with pipelines would wait for answers first, and others for the other side to say goodbye.
 */
export function throwAway(client: Pick<PgClient, 'end' | 'connection'>): void {
  client.end?.().catch(() => undefined)
  client.connection?.stream?.destroy()
}

/** Whether a failed transaction has left its client as it was: the server answered, and no transaction is open. */
export function isCleanAfter(error: unknown, client: Pick<PgClient, 'getTransactionStatus'>): boolean {
  return !isOfNoUse(error) && client.getTransactionStatus?.() === 'I'
}

/** Whether the connection of this error is gone, does not answer, or leads to a replica. */
export function isOfNoUse(error: unknown): boolean {
  return isConnectionLoss(error) || isReadOnly(error)
}

/** Runs `work` on a client of the pool; unless it called `clean`, or if nobody waits for it any more, the client is thrown away. */
export async function borrowClient<Result>(
  pool: PgPool,
  givenUp: AbortSignal | undefined,
  work: (client: PgPoolClient, clean: () => void) => Promise<Result>,
): Promise<Result> {
  const client = await takeOut(pool)
  // Then nothing is sent on it.
  let isClean = givenUp?.aborted === true
  const clean = (): void => {
    isClean = true
  }
  try {
    return await unlessGivenUp(
      givenUp,
      () => throwAway(client),
      () => work(client, clean),
    )
  } finally {
    client.removeListener('error', ignore)
    client.release(!isClean)
  }
}

/**
 * A client that is out of its pool has no listener, and an error event without one ends the process. By a callback: what awaits a
 * client has its turn only after the rest of what was read with the welcome, which may be the end of the connection.
 */
function takeOut(pool: PgPool): Promise<PgPoolClient> {
  return new Promise((resolve, reject) => {
    pool.connect((error, client) => {
      if (client === undefined) return reject(error ?? new WaybillError('INTERNAL', 'The pool handed out no client.'))
      client.on('error', ignore)
      resolve(client)
    })
  })
}

function ignore(): void {}

/** Calls `drop` when nobody waits for the work any more, to close its connection: whatever is under way there fails then, a ROLLBACK too. */
export async function unlessGivenUp<Result>(
  givenUp: AbortSignal | undefined,
  drop: () => void,
  work: () => Promise<Result>,
): Promise<Result> {
  if (givenUp === undefined) return await work()
  if (givenUp.aborted) throw new WaybillError('ABORTED', 'It was given up before a connection could be had for it.')
  givenUp.addEventListener('abort', drop)
  try {
    return await work()
  } finally {
    givenUp.removeEventListener('abort', drop)
  }
}
