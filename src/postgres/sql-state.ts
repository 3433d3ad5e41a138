/**
 * The only place that reads SQLSTATEs and driver error texts.
 *
 * Drivers and ORMs wrap the server's error differently; the code is found in the error itself or in its causes.
 */

/** The server's five-character code, if there is one anywhere in the error's chain. */
export function sqlState(error: unknown): string | undefined {
  for (const each of chain(error)) {
    const { code, meta, originalError, driverError } = each as { code?: unknown; meta?: { code?: unknown }; originalError?: unknown; driverError?: unknown }
    for (const candidate of [code, meta?.code, codeOf(originalError), codeOf(driverError)]) {
      if (typeof candidate === 'string' && /^[0-9A-Z]{5}$/.test(candidate) && !/^E[A-Z]{4}$/.test(candidate) && !/^P[12][0-9]{3}$/.test(candidate)) return candidate
    }
  }
  return undefined
}

/** The closure may be run again as a whole: serialisation failure or deadlock. */
export function isRetryableState(state: string | undefined): boolean {
  return state === '40001' || state === '40P01'
}

/** lock_timeout ended the wait for a row. */
export function isLockTimeout(error: unknown): boolean {
  return sqlState(error) === '55P03'
}

export function isUniqueViolation(error: unknown): boolean {
  return sqlState(error) === '23505'
}

/** The connection is gone or going: nothing more can be learnt on it. */
export function isConnectionLoss(error: unknown): boolean {
  const state = sqlState(error)
  if (state !== undefined) return state.startsWith('08') || ['57P01', '57P02', '57P03', '25P03', '57P05'].includes(state)
  for (const each of chain(error)) {
    const { code, message } = each as { code?: unknown; message?: unknown }
    if (typeof code === 'string' && lostCodes.has(code)) return true
    if (typeof message === 'string' && lostMessage.test(message)) return true
  }
  return false
}

const lostCodes = new Set(['ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH', 'CONNECTION_CLOSED', 'CONNECTION_ENDED', 'CONNECTION_DESTROYED', 'CONNECT_TIMEOUT', 'P1001', 'P1002', 'P1017'])
const lostMessage = /connection terminated|connection (was )?closed|server closed the connection|socket hang up|client has encountered a connection error|read timeout|query read timeout|not queryable|connection ended|closed the connection/i

function* chain(error: unknown): Generator<object> {
  const seen = new Set<unknown>()
  for (let each = error; typeof each === 'object' && each !== null && !seen.has(each); each = (each as { cause?: unknown }).cause) {
    seen.add(each)
    yield each
  }
}

function codeOf(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? (value as { code?: unknown }).code : undefined
}
