/**
 * Text that came from elsewhere, made fit for Postgres: without NUL, which no text may hold, and without half a surrogate pair,
 * which no JSON may. And moments, made fit for `Date`, too: a message's time is what its producer says. It may be in nanoseconds, before
 * the year 1, or no number at all, and must not make the message impossible to keep.
 */
import { redactSecrets } from '../../core/redact.ts'

export function storableText(text: string): string {
  return text.replaceAll('\u0000', '').toWellFormed()
}

/** The text of an error as the tables keep it: storable, without the secrets it quotes, and bounded. */
export function storableError(text: string): string {
  return storableText(redactSecrets(text)).slice(0, longestError)
}

const longestError = 2_000

const earliestMs = Date.parse('0001-01-01T00:00:00.000Z')
const latestMs = Date.parse('9999-12-31T23:59:59.999Z')

/** The nearest moment that a timestamptz takes as text, in milliseconds since 1970. */
export function storableMs(ms: number): number {
  return Number.isNaN(ms) ? 0 : Math.min(latestMs, Math.max(earliestMs, ms))
}

/** The same as text. */
export function storableMoment(ms: number): string {
  return new Date(storableMs(ms)).toISOString()
}
