/**
 * The events of scripts: few, and each always of the same aggregate and version.
 */
import type { Item } from '../../src/consumer/item.ts'
import { aggregateKey } from '../../src/consumer/received-event.ts'
import { businessKeyId } from '../../src/core/id.ts'

export const allTypes: readonly string[] = ['video', 'account']
export const sequentialTypes: readonly string[] = ['account']
/** The last event of a sequential aggregate closes the gap before it. */
export const standing = [{ aggregateType: 'account', eventType: 'Restated' }] as const
const newest = 3

export const aggregates: readonly { readonly aggregateType: string; readonly aggregateId: string }[] = [
  { aggregateType: 'video', aggregateId: 'a' },
  { aggregateType: 'account', aggregateId: 'b' },
]

export const events: readonly Item[] = aggregates.flatMap(({ aggregateType, aggregateId }) =>
  [1, 2, newest].map((version) => item(aggregateType, aggregateId, version)),
)

function item(type: string, id: string, version: number): Item {
  const event = {
    key: aggregateKey({ aggregateType: type, aggregateId: id }),
    id: businessKeyId('event', [type, id, version]),
    type: version === newest ? 'Restated' : 'Happened',
    aggregateType: type,
    aggregateId: id,
    version: BigInt(version),
    schemaVersion: 1,
    occurredAtMs: 0,
  }
  const message = {
    messageId: 'm',
    topic: 't',
    orderingKey: id,
    attributes: { event_type: event.type },
    body: Buffer.from(id),
    publishedAtMs: 0,
  }
  return {
    event,
    message,
    key: event.key,
    route: undefined,
    sequential: sequentialTypes.includes(type),
    origin: { kind: 'waiting', seq: '0' },
    refusal: undefined,
    data: undefined,
  }
}
