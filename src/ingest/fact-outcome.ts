/**
 * What became of a fact, as a value. `accepted` is said only after the broker, or the outbox, has confirmed it.
 */
import { errorMeanings, isWaybillError } from '../core/errors.ts'

/** Why a fact was not accepted. */
export const ingestErrorCodes = [
  'INVALID_INPUT',
  'TOO_LARGE',
  'FACT_CONFLICT',
  'REJECTED',
  'OVERLOADED',
  'UNAVAILABLE',
  'ABORTED',
] as const
export type IngestErrorCode = (typeof ingestErrorCodes)[number]

export interface Accepted {
  readonly status: 'accepted'
  /** The same for every repeat of the fact. */
  readonly eventId: string
}

export interface Refused {
  readonly status: 'refused'
  readonly code: IngestErrorCode
  readonly message: string
  /** Whether the same fact may simply be sent again. */
  readonly retryable: boolean
  /** When to send it again, where that is known. */
  readonly retryAfterMs: number | undefined
}

export type FactOutcome = Accepted | Refused

export function refused(code: IngestErrorCode, message: string, retryAfterMs?: number): Refused {
  return { status: 'refused', code, message, retryable: errorMeanings[code].retryable, retryAfterMs }
}

/** The refusal that an error stands for; anything else is a defect, and thrown on. */
export function refusalOf(error: unknown, retryAfterMs: number): Refused {
  if (!isWaybillError(error)) throw error
  const code = ingestErrorCodes.find((each) => each === error.code)
  if (code === undefined) throw error
  return refused(code, error.message, errorMeanings[code].retryable ? retryAfterMs : undefined)
}
