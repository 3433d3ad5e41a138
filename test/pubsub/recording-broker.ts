/**
 * The Pub/Sub server's broker, with a memory and a will: it keeps what was stored, in the order in which it was stored, and
 * refuses messages for what they are, as Pub/Sub does with those that break a topic's schema.
 */
import { Broker, type BrokerParts } from '../../packages/pubsub-server/src/broker/broker.ts'
import type { Encoded, Message } from '../../packages/pubsub-server/src/model/message.ts'
import { readAttributes } from '../../packages/pubsub-server/src/protocol/publish-codec.ts'
import { invalid } from '../../packages/pubsub-server/src/model/rpc-error.ts'
import type { Topic } from '../../packages/pubsub-server/src/broker/topic.ts'

export interface RecordingBrokerParts extends BrokerParts {
  readonly rejects: (attributes: ReadonlyMap<string, string>) => boolean
  /** Told of each message as it is stored. */
  readonly onStored: (attributes: ReadonlyMap<string, string>) => void
}

export class RecordingBroker extends Broker {
  readonly #parts: RecordingBrokerParts

  constructor(parts: RecordingBrokerParts) {
    super(parts)
    this.#parts = parts
  }

  override publish(topic: Topic, encoded: readonly Encoded[], extra?: Buffer): Message[] {
    const attributes = encoded.map(({ source, start, end }) => readAttributes(source.subarray(start, end)))
    if (attributes.some(this.#parts.rejects)) throw invalid('A message of this request does not fit the topic.')
    const messages = super.publish(topic, encoded, extra)
    attributes.forEach(this.#parts.onStored)
    return messages
  }
}
