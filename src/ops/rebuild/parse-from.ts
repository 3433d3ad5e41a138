/**
 * Where an operator says that reading begins. A time is one moment, whatever the zone of the machine that it is typed on, and is
 * said back in UTC.
 */
import { WaybillError } from '../../core/errors.ts'
import type { SeekTarget, SnapshotTarget } from '../../transport/port/transport.ts'

/** A date, which begins in UTC, or a date and a time with their zone. */
const moment = /^(\d{4}-\d{2}-\d{2})(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2}))?$/

const snapshotName = /^snapshot:(\S+)$/

/** Reads `earliest`, `outbox`, a time or `snapshot:` with a name. */
export function parseFrom(text: string): 'outbox' | SeekTarget | SnapshotTarget {
  if (text === 'outbox' || text === 'earliest') return text
  const [, snapshot] = snapshotName.exec(text) ?? []
  if (snapshot !== undefined) return { snapshot }
  const sinceMs = momentMs(text)
  if (sinceMs !== undefined) return { sinceMs }
  throw new WaybillError(
    'INVALID_OPTION',
    `from: must be earliest, outbox, snapshot:<name>, a date such as 2026-05-01 (UTC), or a time with its zone such as 2026-05-01T14:00:00Z or 2026-05-01T16:00:00+02:00, got ${JSON.stringify(text)}.`,
  )
}

/** The same in words that `parseFrom` takes. */
export function showFrom(from: ReturnType<typeof parseFrom>): string {
  if (typeof from === 'string') return from
  return 'snapshot' in from ? `snapshot:${from.snapshot}` : new Date(from.sinceMs).toISOString()
}

function momentMs(text: string): number | undefined {
  const [, date = ''] = moment.exec(text) ?? []
  const ms = Date.parse(text)
  if (date === '' || Number.isNaN(ms)) return undefined
  // To `Date` the 30th of February is the 2nd of March.
  return new Date(date).toISOString().startsWith(date) ? ms : undefined
}
