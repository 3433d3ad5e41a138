/**
 * Moments that came from elsewhere, made fit for Postgres and for `Date`. A message's time is what its producer says: it may be
 * in nanoseconds, before the year 1, or no number at all, and must not make the message impossible to keep.
 */
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
