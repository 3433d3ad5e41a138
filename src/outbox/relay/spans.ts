/**
 * The relay's part of an event's trace: a span from the reading of its batch to its confirmation.
 */
import type { Tracing } from '../../core/tracing.ts'
import type { DispatchRow } from '../tables/dispatch.sql.ts'
import { headersOf } from './message.ts'

/** Records the publishing of those events that belong to a trace. */
export function recordPublished(
  { relay, tracing }: { readonly relay: string; readonly tracing: Tracing },
  rows: readonly DispatchRow[],
  times: { readonly startedAtMs: number; readonly endedAtMs: number },
): void {
  for (const row of rows) {
    if (!row.headers.includes('"traceparent"')) continue
    const attributes = {
      'waybill.relay': relay,
      'waybill.event.id': row.event_id,
      'waybill.event.type': row.event_type,
      'waybill.event.version': row.version,
      'waybill.aggregate.type': row.aggregate_type,
      'waybill.aggregate.id': row.aggregate_id,
      'waybill.attempts': row.publish_attempts + 1,
    }
    tracing.record({ name: `publish ${row.event_type}`, kind: 'producer', attributes, parent: headersOf(row) }, times)
  }
}
