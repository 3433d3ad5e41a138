/**
 * A reader of its own beside the consumer: it sees what the broker has, once for each message, and can put more there.
 *
 * What a broker delivers to it twice is one message; what a relay published twice is two.
 */
import { newId } from '../../core/event/id.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Log } from '../../testing/history/entry.ts'
import { logEntry } from '../../testing/history/message-entries.ts'
import type { IncomingMessage, OutgoingMessage, Receiver, Transport } from '../../transport/port/transport.ts'
import { tapName } from '../target/target.ts'

/** Marks what a drill made up. Consumers do not look at it. */
const forgedMark = 'waybill_drill_forged'

export class Tap {
  readonly log: Log[] = []
  readonly #messages = new Map<string, IncomingMessage>()
  readonly transport: Transport
  readonly #streams: readonly AnyStream[]
  #receiver: Receiver | undefined

  constructor(transport: Transport, streams: readonly AnyStream[]) {
    this.transport = transport
    this.#streams = streams
  }

  /** What the broker has of the owner's events, in the order of its log as far as it keeps one. */
  get messages(): readonly IncomingMessage[] {
    return [...this.#messages.values()]
  }

  async open(topic: string): Promise<void> {
    this.#receiver = await this.transport.receive({
      topic,
      consumer: tapName,
      maxMessages: 1_000,
      maxBytes: 16_000_000,
      onDelivery: (delivery) => {
        this.#take(delivery.message)
        void delivery.ack()
      },
      // A broker that is away is what some drills are about.
      onError: () => {},
    })
  }

  /** Publishes messages again as they were. */
  async repeat(messages: readonly IncomingMessage[]): Promise<number> {
    return await this.#publish(messages.map((message) => outgoing(message)))
  }

  /** Publishes the contents of messages as events that nobody has seen; returns their ids. */
  async forge(messages: readonly IncomingMessage[]): Promise<readonly string[]> {
    const forged = messages.map((message) => {
      const copy = outgoing(message)
      return { ...copy, attributes: { ...copy.attributes, event_id: newId(), [forgedMark]: 'yes' } }
    })
    const taken = await this.#publish(forged)
    if (taken < forged.length)
      throw new WaybillError('UNAVAILABLE', `The broker took ${taken} of ${forged.length} messages that a drill published.`)
    return forged.map(({ attributes }) => attributes.event_id)
  }

  /** Reads no more; the transport stays open. */
  async stop(): Promise<void> {
    await this.#receiver?.close(AbortSignal.abort())
  }

  #take(message: IncomingMessage): void {
    if (message.attributes[forgedMark] !== undefined || this.#messages.has(message.messageId)) return
    this.#messages.set(message.messageId, message)
    this.log.push({ ...logEntry(message, this.#streams), source: 'broker' })
  }

  async #publish(messages: readonly OutgoingMessage[]): Promise<number> {
    const signal = AbortSignal.timeout(20_000)
    const outcomes = await this.transport.publish(messages, { signal, maySend: () => !signal.aborted })
    return outcomes.filter(({ status }) => status === 'confirmed').length
  }
}

function outgoing({ topic, orderingKey, attributes, body }: IncomingMessage): OutgoingMessage {
  return { topic, orderingKey, attributes, body }
}
