/**
 * The events of scripts: few, and each always of the same aggregate and version. Two of the first version are there, as a
 * redriven letter and the void that stood in for it are.
 */
import type { Item } from '../../src/consumer/model/batch-item.ts'
import { aggregateKey } from '../../src/consumer/model/received-event.ts'
import { businessKeyId } from '../../src/core/event/id.ts'

export const allTypes: readonly string[] = ['video', 'account']
export const sequentialTypes: readonly string[] = ['account']
/** The last event of a sequential aggregate closes the gap before it. */
export const standing = [{ aggregateType: 'account', eventType: 'Restated' }] as const
const newest = 3

export const aggregates: readonly { readonly aggregateType: string; readonly aggregateId: string }[] = [
  { aggregateType: 'video', aggregateId: 'a' },
  { aggregateType: 'account', aggregateId: 'b' },
]

export const events: readonly Item[] = aggregates.flatMap(({ aggregateType, aggregateId }) => [
  item(aggregateType, aggregateId, 1, 'void'),
  ...[1, 2, newest].map((version) => item(aggregateType, aggregateId, version)),
])

function item(type: string, id: string, version: number, name = 'event'): Item {
  const event = {
    key: aggregateKey({ aggregateType: type, aggregateId: id }),
    id: businessKeyId(name, [type, id, version]),
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
    origin: { kind: 'waiting' },
    refusal: undefined,
    data: undefined,
  }
}
