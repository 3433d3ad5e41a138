import { expect, test } from 'vitest'
import { always, ProducingBroker, publisherOn, statuses } from '../../test/kafka/producing-broker.ts'
import type { Ordering } from '../core/event/stream.ts'
import { memory } from '../transport/memory/memory.ts'
import { publishRuns } from '../transport/port/publish-runs.ts'
import type { LazyConnection } from '../transport/pubsub/client/connection.ts'
import { pubsubSender } from '../transport/pubsub/publish.ts'
import type { OutgoingMessage, PublishOutcome } from '../transport/port/transport.ts'
import { assertSize } from './event-limits.ts'
import { toMessage } from './relay/message.ts'
import type { EncodedEvent } from './tables/outbox.sql.ts'

const event: EncodedEvent = {
  id: '01890a5d-ac96-774b-bcce-b302099a8057',
  topic: 'orders',
  aggregateType: `t${'y'.repeat(127)}`,
  aggregateId: 'ä'.repeat(512),
  eventType: `T${'y'.repeat(127)}`,
  payload: new Uint8Array(3_000),
  schemaVersion: 2_147_483_647,
  contentType: `text/${'é'.repeat(500)}`,
  headers: { ['n'.repeat(256)]: 'ü'.repeat(512), traceparent: '00-abc' },
  version: undefined,
  notBefore: undefined,
  source: undefined,
  columns: undefined,
}

/** What the relay makes of it, with the largest of all that is not known when it is added. */
function messageOf({ id, ...given }: EncodedEvent, ordering: Ordering): OutgoingMessage {
  const dispatch = { lane: 32_767, seq: '1', key: '1', state: 0, publish_attempts: 0, void: false, blocked: false, wait_ms: 0 }
  return toMessage(
    {
      ...dispatch,
      event_id: id,
      topic: given.topic,
      aggregate_type: given.aggregateType,
      aggregate_id: given.aggregateId,
      version: '9223372036854775807',
      event_type: given.eventType,
      schema_version: given.schemaVersion,
      content_type: given.contentType,
      payload: given.payload,
      headers: JSON.stringify(given.headers),
      occurred_at: '2025-01-01T00:00:00.000000Z',
    },
    ordering,
  )
}

/** The smallest limit that `add` accepts the event with. */
function countedBytes(of: EncodedEvent): number {
  try {
    assertSize(of, 0)
    return 0
  } catch (error) {
    return (error as { details: { bytes: number } }).details.bytes
  }
}

type Publish = (message: OutgoingMessage, maxBytes: number) => Promise<readonly PublishOutcome[]>

const answering: unknown = { call: () => Promise.resolve({ messageIds: ['1'] }) }
const pubsub = {
  projectId: 'shop',
  publishTimeoutMs: 1_000,
  maxConcurrentRequests: 1,
  attributes: 'plain',
  cloudEventSource: '',
} as const
const transports: Readonly<Record<string, Publish>> = {
  Kafka: (message, maxBytes) => publisherOn(new ProducingBroker(), { maxBytes }).publish([message], always),
  'Pub/Sub': (message, maxBytes) => {
    return publishRuns(pubsubSender(answering as LazyConnection, { ...pubsub, maxBytes }), [message], always)
  },
  memory: (message, maxBytes) => memory({ maxBytes }).publish([message], always),
}

test.each(Object.entries(transports))(
  'the size that is checked when an event is added is the one that %s counts',
  async (_, publish) => {
    const bytes = countedBytes(event)
    expect(statuses(await publish(messageOf(event, 'aggregate'), bytes))).toEqual(['confirmed'])
    expect(statuses(await publish(messageOf(event, 'aggregate'), bytes - 1))).toEqual(['rejected'])
  },
)

test('no order at the broker takes more than is checked', async () => {
  const short = { ...event, aggregateId: 'a' }
  for (const ordering of ['aggregate', 'lane', 'version'] as const) {
    const outcomes = await memory({ maxBytes: countedBytes(short) }).publish([messageOf(short, ordering)], always)
    expect(statuses(outcomes)).toEqual(['confirmed'])
  }
})
