/**
 * Which failures of a batch say nothing about its events: the database was away, busy, took no writes or chose a victim.
 */
import { isWaybillError } from '../../core/errors.ts'
import {
  isConnectionLoss,
  isLockTimeout,
  isReadOnly,
  isRetryableState,
  isUnavailable,
  sqlState,
} from '../../postgres/query/sql-state.ts'
import type { ItemFailure } from '../model/batch-item.ts'

/** An error of our own statements that passes by itself; a statement time-out may, if it does not come again and again. */
export function isOutage(error: unknown): boolean {
  if (isWaybillError(error)) return error.code === 'COMMIT_UNKNOWN' || error.code === 'UNAVAILABLE'
  return isUnavailable(error) || isReadOnly(error) || isLockTimeout(error) || isRetryableState(sqlState(error))
}

/** The same out of a handler. Its own slow statements and lock waits are its own failures. */
export function isHandlerOutage({ cause }: ItemFailure): boolean {
  return isConnectionLoss(cause) || isRetryableState(sqlState(cause))
}
