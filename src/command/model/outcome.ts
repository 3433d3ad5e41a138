/**
 * How a command ended, as a value. Whoever repeats a request learns which of these it is:
 *
 *   executed   this call took effect            replayed   an earlier one did; the same response again
 *   rejected   the command's own rules refused  failed     one of a closed set of codes, below
 *
 * `failed` never means that a committed command did not take effect: ALREADY_COMMITTED says that it did, IN_PROGRESS,
 * OVERLOADED, ABORTED and UNAVAILABLE that the same request may be sent again to find out. Only a request that had no id cannot find out like that:
 * where its end is not known, UNAVAILABLE is not retryable.
 */
import { errorMeanings } from '../../core/errors.ts'
import type { Rejection } from './rejection.ts'

export const commandErrorCodes = [
  'INVALID_INPUT',
  'REQUEST_ID_MISSING',
  'IN_PROGRESS',
  'ALREADY_COMMITTED',
  'KEY_REUSED',
  'VERSION_CONFLICT',
  'PRECONDITION_FAILED',
  'OVERLOADED',
  'ABORTED',
  'UNAVAILABLE',
] as const

export type CommandErrorCode = (typeof commandErrorCodes)[number]

export interface Executed<Response> {
  readonly status: 'executed'
  readonly response: Response
  /** Readers that hold it see this command's change of its aggregate, or a later one. Without an aggregate it is that of the last event. */
  readonly token: string | undefined
  readonly attempts: number
}

export interface Replayed<Response> {
  readonly status: 'replayed'
  readonly response: Response
  readonly token: string | undefined
  readonly from: 'cache' | 'marker'
}

export interface Rejected extends Rejection {
  readonly status: 'rejected'
  readonly replayed: boolean
}

export interface Failed {
  readonly status: 'failed'
  readonly code: CommandErrorCode
  readonly message: string
  /** Whether the same request may be sent again, with the same id if it had one. */
  readonly retryable: boolean
  /** When, if it may. */
  readonly retryAfterMs: number | undefined
  /** The aggregate's current token, to read the state by: with ALREADY_COMMITTED and PRECONDITION_FAILED. */
  readonly token: string | undefined
  readonly cause: unknown
}

export type Outcome<Response = unknown> = Executed<Response> | Replayed<Response> | Rejected | Failed

const retryAfterMs: Partial<Record<CommandErrorCode, number>> = {
  IN_PROGRESS: 1_000,
  VERSION_CONFLICT: 100,
  OVERLOADED: 1_000,
  UNAVAILABLE: 1_000,
}

/** A failure, with what its code says about repeating it. */
export function failed(
  code: CommandErrorCode,
  message: string,
  more: { readonly token?: string | undefined; readonly cause?: unknown; readonly retryable?: boolean } = {},
): Failed {
  const { token, cause, retryable = errorMeanings[code].retryable } = more
  return { status: 'failed', code, message, retryable, retryAfterMs: retryable ? retryAfterMs[code] : undefined, token, cause }
}
