/**
 * The events of scripts: few, and each always of the same aggregate and version.
 */
import type { Item } from '../../src/consumer/item.ts'
import { aggregateKey } from '../../src/consumer/received-event.ts'
import { businessKeyId } from '../../src/core/id.ts'

export const sequentialTypes: readonly string[] = ['account']

export const aggregates: readonly { readonly aggregateType: string; readonly aggregateId: string }[] = [
  { aggregateType: 'video', aggregateId: 'a' },
  { aggregateType: 'account', aggregateId: 'b' },
]

export const events: readonly Item[] = aggregates.flatMap(({ aggregateType, aggregateId }) =>
  [1, 2, 3].map((version) => item(aggregateType, aggregateId, version)),
)

function item(type: string, id: string, version: number): Item {
  const event = {
    key: aggregateKey({ aggregateType: type, aggregateId: id }),
    id: businessKeyId('event', [type, id, version]),
    type: 'Happened',
    aggregateType: type,
    aggregateId: id,
    version: BigInt(version),
    schemaVersion: 1,
    occurredAtMs: 0,
  }
  const message = { messageId: 'm', topic: 't', orderingKey: id, attributes: { a: 'b' }, body: Buffer.from(id), publishedAtMs: 0 }
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
