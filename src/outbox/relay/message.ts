/**
 * The message that a broker gets for an outbox row: the attributes that every reader can rely on, and the bytes as they are.
 */
import { createHash } from 'node:crypto'
import { voidEventType } from '../../core/event/event.ts'
import { headerTexts } from '../../core/event/attributes.ts'
import type { Ordering } from '../../core/event/stream.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import type { DispatchRow } from '../tables/dispatch.sql.ts'

const nothing = new Uint8Array(0)

/** Headers cannot replace the attributes that we promise. */
export function toMessage(row: DispatchRow & { readonly topic: string }, ordering: Ordering): OutgoingMessage {
  return {
    topic: row.topic,
    orderingKey: orderingKey(row, ordering),
    attributes: {
      ...headersOf(row),
      event_id: row.event_id,
      event_type: row.void ? voidEventType : row.event_type,
      aggregate_type: row.aggregate_type,
      aggregate_id: row.aggregate_id,
      version: row.version,
      schema_version: String(row.schema_version),
      occurred_at: row.occurred_at,
      content_type: row.content_type,
    },
    body: row.void ? nothing : row.payload,
  }
}

/** Attributes are texts; whoever adds events by SQL can write any JSON, and must not stop the relay with it. */
export function headersOf({ headers }: Pick<DispatchRow, 'headers'>): Record<string, string> {
  if (headers === '{}') return {}
  return headerTexts(headers) ?? { headers }
}

/** Brokers limit a key to 1 KB; a longer aggregate id is replaced by its hash, here and for every relay alike. */
function orderingKey(row: DispatchRow, ordering: Ordering): string | undefined {
  if (ordering === 'version') return undefined
  if (ordering === 'lane') return `lane-${row.lane}`
  if (row.aggregate_id.length <= 256 || Buffer.byteLength(row.aggregate_id) <= 1024) return row.aggregate_id
  return createHash('sha256').update(row.aggregate_id).digest('hex')
}
