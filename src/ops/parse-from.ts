/**
 * Where an operator says that reading begins. A time is one moment, whatever the zone of the machine that it is typed on, and is
 * said back in UTC.
 */
import { WaybillError } from '../core/errors.ts'
import type { SeekTarget } from '../transport/transport.ts'

/** A date, which begins in UTC, or a date and a time with their zone. */
const moment = /^(\d{4}-\d{2}-\d{2})(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2}))?$/

/** Reads `earliest`, `outbox` or a time. */
export function parseFrom(text: string): 'outbox' | SeekTarget {
  if (text === 'outbox' || text === 'earliest') return text
  const sinceMs = momentMs(text)
  if (sinceMs !== undefined) return { sinceMs }
  throw new WaybillError(
    'INVALID_OPTION',
    `from: must be earliest, outbox, a date such as 2026-05-01 (UTC), or a time with its zone such as 2026-05-01T14:00:00Z or 2026-05-01T16:00:00+02:00, got ${JSON.stringify(text)}.`,
  )
}

/** The same in words that `parseFrom` takes. */
export function showFrom(from: 'outbox' | SeekTarget): string {
  return typeof from === 'string' ? from : new Date(from.sinceMs).toISOString()
}

function momentMs(text: string): number | undefined {
  const [, date = ''] = moment.exec(text) ?? []
  const ms = Date.parse(text)
  if (date === '' || Number.isNaN(ms)) return undefined
  // To `Date` the 30th of February is the 2nd of March.
  return new Date(date).toISOString().startsWith(date) ? ms : undefined
}
