/**
 * Opens a database for one piece of work and closes it again, whatever happens. What the driver throws while connecting
 * becomes a sentence that names the address and says what to do.
 */
import { connect, type Connection } from '../postgres/connect.ts'
import { explainConnectFailure, parseDatabaseUrl } from '../postgres/connect-failure.ts'

/** Runs `work` on a pool of its own. */
export async function withDatabase<Result>(url: string, work: (db: Connection) => Promise<Result>): Promise<Result> {
  parseDatabaseUrl(url)
  const db = connect({ url, max: 2 })
  try {
    return await work(db)
  } catch (error) {
    throw explainConnectFailure(error, url)
  } finally {
    await db.close()
  }
}
