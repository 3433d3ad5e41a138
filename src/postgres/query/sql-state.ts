/**
 * The only place that reads SQLSTATEs and driver error texts.
 *
 * Drivers and ORMs wrap the server's error differently; the code is found in the error itself or in its causes.
 */

/** The server's five-character code, if there is one anywhere in the error's chain. */
export function sqlState(error: unknown): string | undefined {
  for (const { code, originalCode, meta } of chainOf(error)) {
    const found = [code, originalCode, meta?.code].find(isSqlState)
    if (found !== undefined) return found
  }
  return undefined
}

/** The closure may be run again as a whole: serialisation failure or deadlock. */
export function isRetryableState(state: string | undefined): boolean {
  return state === '40001' || state === '40P01'
}

/** An earlier statement of this transaction failed, and somebody went on as if it had not. */
export function isAbortedTransaction(error: unknown): boolean {
  return sqlState(error) === '25P02'
}

/** The statement is for transactions only, and none is under way. */
export function isOutsideTransaction(error: unknown): boolean {
  return sqlState(error) === '25P01'
}

/** lock_timeout ended the wait for a row, or for another lock. */
export function isLockTimeout(error: unknown): boolean {
  return sqlState(error) === '55P03'
}

/** statement_timeout ended a statement, or somebody cancelled it: only the text tells, in whatever language the server speaks. */
export function isStatementTimeout(error: unknown): boolean {
  return sqlState(error) === '57014'
}

/** The server refuses a value for what it is, and would refuse it again: data exceptions and program limits. */
export function isRefusedValue(error: unknown): boolean {
  const state = sqlState(error)
  return state !== undefined && (state.startsWith('22') || state.startsWith('54'))
}

/** The database role lacks a right. */
export function isForbidden(error: unknown): boolean {
  return sqlState(error) === '42501'
}

/** What a statement would make is there already, or another transaction made it at the same moment. */
export function isAlreadyThere(error: unknown): boolean {
  return ['23505', '42P06', '42P07', '42710'].includes(sqlState(error) ?? '')
}

/** The script of the roles refuses a role that is not this schema's own. */
export function isRoleRefused(error: unknown): boolean {
  return sqlState(error) === 'WB008'
}

export function isUniqueViolation(error: unknown): boolean {
  return sqlState(error) === '23505'
}

/** The connection is gone or going: nothing more can be learnt on it. */
export function isConnectionLoss(error: unknown): boolean {
  const state = sqlState(error)
  if (state !== undefined) return lostState.test(state) || (isFatal(error) && !refusedSession.test(state))
  for (const { code, kind, message } of chainOf(error)) {
    if (lostCodes.has(code) || lostCodes.has(kind)) return true
    if (typeof message === 'string' && lostMessage.test(message)) return true
  }
  return false
}

/** The driver gave up waiting for an answer (`query_timeout` of node-postgres). The connection lives, and the statement may, too. */
export function isUnanswered(error: unknown): boolean {
  return [...chainOf(error)].some(({ message }) => typeof message === 'string' && unanswered.test(message))
}

/**
 * The session ended with the error, whatever its code: poolers send their own outages as FATAL with XX000. postgres.js shows the
 * severity in English, node-postgres in the server's language, so what the server itself sends is known by its code, too.
 */
function isFatal(error: unknown): boolean {
  return [...chainOf(error)].some(({ severity }) => severity === 'FATAL' || severity === 'PANIC')
}

/** A write where none is taken: in a read-only transaction, or on a replica. */
export function isReadOnly(error: unknown): boolean {
  return sqlState(error) === '25006'
}

/** The database cannot do this now, and may do it later: it is gone, full, out of time, or no connection could be had. */
export function isUnavailable(error: unknown): boolean {
  const state = sqlState(error)
  if (state !== undefined) return isConnectionLoss(error) || state.startsWith('53') || state === '57014'
  return isConnectionLoss(error) || [...chainOf(error)].some((each) => noConnection.test((each as Error).message))
}

/** The server, or a pooler in front of it, failed in itself: its answer to COMMIT says nothing about the outcome. */
export function isSystemFailure(state: string): boolean {
  return state.startsWith('XX') || state.startsWith('58')
}

/** Connection exceptions, the end of a server or of its database, and sessions that were idle for too long. */
const lostState = /^(08|57P0[1-5]|25P03)/
/** The server lets nobody in who asks like that (user, password, database, parameters), and would not later: no outage. */
const refusedSession = /^(0A|22|28|3D|42|55)/
/** Codes of Node, of postgres.js and of Prisma, and the kinds of Prisma's driver adapters. */
const lostCodes: ReadonlySet<unknown> = new Set(
  `ECONNRESET ECONNREFUSED ECONNABORTED EPIPE ETIMEDOUT ENOTFOUND EAI_AGAIN EHOSTUNREACH ENETUNREACH EADDRNOTAVAIL EMFILE ENFILE
   CONNECTION_CLOSED CONNECTION_ENDED CONNECTION_DESTROYED CONNECT_TIMEOUT
   P1001 P1002 P1017 DatabaseNotReachable ConnectionClosed SocketTimeout`.split(/\s+/),
)
const noConnection =
  /timeout exceeded when trying to connect|timed out fetching a (new )?connection|timeout acquiring a connection|unable to start a transaction in the given time/i
const unanswered = /query read timeout/i
const lostMessage =
  /connection terminated|connection (was )?closed|server closed the connection|socket hang up|client has encountered a connection error|read timeout|not queryable|connection ended|closed the connection|query runner already released/i

/** What drivers and ORMs write into their errors: node-postgres and postgres.js, TypeORM, Prisma. */
interface Wrapped {
  readonly code?: unknown
  readonly originalCode?: unknown
  readonly kind?: unknown
  readonly severity?: unknown
  readonly message?: unknown
  readonly cause?: unknown
  readonly driverError?: unknown
  readonly originalError?: unknown
  readonly meta?: { readonly code?: unknown; readonly driverAdapterError?: unknown }
}

/** The error and everything it wraps, outermost first. */
export function* chainOf(error: unknown): Generator<Wrapped> {
  const seen = new Set<unknown>()
  const waiting = [error]
  for (let each = waiting.shift(); each !== undefined; each = waiting.shift()) {
    if (typeof each !== 'object' || each === null || seen.has(each)) continue
    seen.add(each)
    const wrapped: Wrapped = each
    yield wrapped
    const inner = [wrapped.cause, wrapped.driverError, wrapped.originalError, wrapped.meta?.driverAdapterError]
    waiting.push(...inner.filter((other) => other !== undefined))
  }
}

/** Not a code of Node (EPIPE) and not one of Prisma (P2010), which look alike. */
function isSqlState(value: unknown): value is string {
  return typeof value === 'string' && /^[0-9A-Z]{5}$/.test(value) && !/^E[A-Z]{4}$/.test(value) && !/^P[1-6][0-9]{3}$/.test(value)
}

/** The constraint that was violated, if the driver tells. */
export function constraintName(error: unknown): string | undefined {
  for (const each of chainOf(error)) {
    const { constraint, constraint_name: other, driverError } = each as ConstraintError
    for (const found of [constraint, other, driverError?.constraint]) if (typeof found === 'string') return found
  }
  return undefined
}

interface ConstraintError {
  readonly constraint?: unknown
  readonly constraint_name?: unknown
  readonly driverError?: { readonly constraint?: unknown }
}
