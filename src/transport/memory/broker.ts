/**
 * The state of the in-memory broker: topics with what they retain, and their subscriptions.
 *
 * What lands gets the next place in the broker's order and goes to every subscription that exists; one that is made later
 * begins with what is retained.
 */
import type { Clock } from '../../core/service/clock.ts'
import type { StoredMessage } from './receiver.ts'
import { MemorySubscription } from './subscription.ts'
import type { Dice } from './faults.ts'
import { messageBytes } from '../port/publish-runs.ts'
import type { IncomingMessage, OutgoingMessage, SeekTarget } from '../port/transport.ts'

/** A message that was handed to a consumer. */
export interface HandedMessage extends IncomingMessage {
  readonly consumer: string
}

interface Topic {
  readonly log: StoredMessage[]
  readonly subscriptions: Map<string, MemorySubscription>
}

export class MemoryBroker {
  readonly published: StoredMessage[] = []
  readonly deliveries: HandedMessage[] = []
  readonly #topics = new Map<string, Topic>()
  readonly #options: { readonly clock: Clock; readonly dice: Dice; readonly retain: boolean }
  count = 0

  constructor(options: { readonly clock: Clock; readonly dice: Dice; readonly retain: boolean }) {
    this.#options = options
  }

  /** Takes a message in and returns its id. */
  land(message: OutgoingMessage): string {
    const { topic: name, orderingKey, attributes, body } = message
    const topic = this.#topic(name)
    this.count += 1
    const messageId = String(this.count)
    const publishedAtMs = this.#options.clock.nowMs()
    const stored = {
      messageId,
      topic: name,
      orderingKey,
      attributes,
      body,
      publishedAtMs,
      sequence: this.count,
      bytes: messageBytes(message),
    }
    if (this.#options.retain) {
      this.published.push(stored)
      topic.log.push(stored)
    }
    for (const subscription of topic.subscriptions.values()) subscription.add(stored)
    return messageId
  }

  subscription(topicName: string, consumer: string): MemorySubscription {
    const topic = this.#topic(topicName)
    const known = topic.subscriptions.get(consumer)
    if (known !== undefined) return known
    const { clock, dice, retain } = this.#options
    const onDelivered = (message: IncomingMessage): void => void (retain && this.deliveries.push({ ...message, consumer }))
    const subscription = new MemorySubscription({ clock, dice, onDelivered })
    for (const stored of topic.log) subscription.add(stored)
    topic.subscriptions.set(consumer, subscription)
    return subscription
  }

  seek(topic: string, consumer: string, to: SeekTarget): void {
    const sinceMs = to === 'earliest' ? -Infinity : to.sinceMs
    this.subscription(topic, consumer).reset(this.#since(topic, sinceMs))
  }

  rewind(topic: string, consumer: string, sinceMs: number): void {
    const subscription = this.subscription(topic, consumer)
    const kept = new Set([...subscription.unsettled(), ...this.#since(topic, sinceMs)])
    subscription.reset([...kept].toSorted((a, b) => a.sequence - b.sequence))
  }

  close(): void {
    for (const { subscriptions } of this.#topics.values())
      for (const subscription of subscriptions.values()) subscription.closeAll()
  }

  #since(topic: string, sinceMs: number): readonly StoredMessage[] {
    return this.#topic(topic).log.filter(({ publishedAtMs }) => publishedAtMs >= sinceMs)
  }

  #topic(name: string): Topic {
    const known = this.#topics.get(name)
    if (known !== undefined) return known
    const topic: Topic = { log: [], subscriptions: new Map() }
    this.#topics.set(name, topic)
    return topic
  }
}
