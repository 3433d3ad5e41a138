/**
 * Opens a database for one piece of work and closes it again, whatever happens, as far as it still answers. What the driver throws while
 * connecting becomes a sentence that names the address and says what to do.
 *
 * It connects before the work begins. What fails later may be another database of the work, or a broker, and is thrown as it is.
 */
import { connect, type Connection } from '../../postgres/connect.ts'
import { explainConnectFailure, parseDatabaseUrl } from '../../postgres/connect-failure.ts'
import { systemClock } from '../../core/service/clock.ts'
import { unlessLate } from '../../core/service/abort.ts'

/** Runs `work` on a pool of its own, of two connections unless told otherwise. One that may be away is not asked before. */
export async function withDatabase<Result>(
  url: string,
  work: (db: Connection) => Promise<Result>,
  { max = 2, mayBeAway = false }: { readonly max?: number; readonly mayBeAway?: boolean } = {},
): Promise<Result> {
  parseDatabaseUrl(url)
  const db = connect({ url, max })
  return await closedAfter(db, async () => {
    if (!mayBeAway) await reach(db, url)
    return await work(db)
  })
}

/** By a statement: a pooler may take a connection while the server behind it is away. */
async function reach(db: Connection, url: string): Promise<void> {
  try {
    await db.query('select')
  } catch (error) {
    throw explainConnectFailure(error, url)
  }
}

/**
 * Closes what may not answer any more. A pool waits for the connections that are in use, and one whose packets are dropped is in
 * use for ever; whoever waits for that neither says what went wrong nor ends.
 */
interface Closable {
  close(): Promise<void>
}

const closeMs = 3_000

/** Runs `work` and closes what it needed. If both fail, it rejects as the work did: the other mostly follows from it. */
export async function closedAfter<Result>(closable: Closable, work: () => Promise<Result>): Promise<Result> {
  let result: Result
  try {
    result = await work()
  } catch (error) {
    await closeInTime(closable).catch(() => undefined)
    throw error
  }
  await closeInTime(closable)
  return result
}

/** Resolves when it is closed, or has had its time; rejects if closing fails. */
async function closeInTime(closable: Closable): Promise<void> {
  await unlessLate(closable.close(), closeMs, systemClock)
}
