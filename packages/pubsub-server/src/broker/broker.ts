/**
 * Everything the server knows, and the two things that move messages: publishing and dead-lettering.
 *
 * A publish reaches every subscription of its topic in one synchronous step, so all of them see the same order.
 * Each change is noted in the journal as it is made; a caller is answered after the journal has it.
 */
import type { Clock } from '../model/clock.ts'
import type { Faults } from '../model/faults.ts'
import type { Journal } from '../model/journal.ts'
import { acceptMessages } from '../model/message.ts'
import type { Encoded, Message } from '../model/message.ts'
import type { SubscriptionResource } from '../model/resources.ts'
import { notFound, RpcError } from '../model/rpc-error.ts'
import type { Snapshot } from '../model/snapshot.ts'
import { encodeAttribute, measureMessage } from '../protocol/publish-codec.ts'
import type { Entry } from '../queue/entry.ts'
import { TimerWheel } from '../queue/timer-wheel.ts'
import type { Timed } from '../queue/timer-wheel.ts'
import { SchemaRegistry } from '../schema/schema-registry.ts'
import { PolicyStore } from './policy-store.ts'
import { Subscription } from './topic.ts'
import type { Topic } from './topic.ts'

export interface BrokerParts {
  readonly clock: Clock
  readonly faults: Faults
  readonly journal: Journal
}

export interface SubscriptionStats {
  readonly name: string
  readonly unackedMessages: number
  readonly unackedBytes: number
  readonly leasedMessages: number
  readonly streams: number
}

export interface BrokerStats {
  readonly topics: number
  /** Messages accepted, and messages settled in any subscription, since the start. */
  readonly published: number
  readonly settled: number
  readonly subscriptions: readonly SubscriptionStats[]
}

const sweepMs = 60_000

/** As many as leave a lease's number, nonce and slot together, a safe integer. */
const nonces = 90_000_000

export class Broker {
  readonly clock: Clock
  readonly faults: Faults
  readonly timers: TimerWheel
  readonly topics: Map<string, Topic> = new Map()
  readonly subscriptions: Map<string, Subscription> = new Map()
  readonly snapshots: Map<string, Snapshot> = new Map()
  readonly schemas: SchemaRegistry
  readonly policies: PolicyStore
  journal: Journal
  lastNumber: number
  published = 0
  settled = 0
  #nonce: number

  constructor(parts: BrokerParts) {
    this.clock = parts.clock
    this.faults = parts.faults
    this.journal = parts.journal
    this.timers = new TimerWheel(parts.clock)
    this.schemas = new SchemaRegistry(this)
    this.policies = new PolicyStore(this)
    this.lastNumber = Math.floor(this.clock.nowMs()) * 1000
    // Ids from before a restart must name no lease of this one.
    this.#nonce = Math.floor(Math.random() * nonces)
  }

  /** Whether there is a resource of that name that may have a policy. */
  has(resource: string): boolean {
    return [this.topics, this.subscriptions, this.snapshots, this.schemas].some((each) => each.has(resource))
  }

  topic(name: string): Topic {
    const topic = this.topics.get(name)
    if (topic === undefined) throw notFound('topic', name)
    return topic
  }

  subscription(name: string): Subscription {
    const subscription = this.subscriptions.get(name)
    if (subscription === undefined) throw notFound('subscription', name)
    return subscription
  }

  snapshot(name: string): Snapshot {
    const snapshot = this.snapshots.get(name)
    if (snapshot === undefined || snapshot.isExpired(this.clock.nowMs())) throw notFound('snapshot', name)
    return snapshot
  }

  /** Stores the messages and hands them to every subscription of the topic; `extra` is appended to each of them. */
  publish(topic: Topic, encoded: readonly Encoded[], extra?: Buffer): Message[] {
    const stamp = { firstNumber: this.lastNumber + 1, publishMs: this.clock.nowMs() }
    const messages = acceptMessages(encoded, extra === undefined ? stamp : { ...stamp, extra })
    this.lastNumber += messages.length
    this.journal.publish(topic.resource.name, messages)
    for (const message of messages) {
      topic.keep(message)
      for (const subscription of topic.subscriptions) {
        if (subscription.matches(message)) subscription.queue.add(message, this.faults.publishDelayMs())
      }
    }
    this.published += messages.length
    return messages
  }

  /** A subscription that lives in this broker; the caller registers it. */
  openSubscription(resource: SubscriptionResource, topic: Topic | null): Subscription {
    const subscription: Subscription = new Subscription(resource, topic, {
      timers: this.timers,
      newNonce: () => (this.#nonce = (this.#nonce + 1) % nonces),
      onSettled: (message) => {
        this.settled += 1
        this.journal.settle(resource.name, message)
      },
      deadLetter: (entry) => this.#deadLetter(subscription, entry),
      pick: (count) => this.faults.pick(count),
    })
    return subscription
  }

  /** Drops what has outlived its retention, and snapshots past their time. */
  sweep(): void {
    const nowMs = this.clock.nowMs()
    for (const [name, snapshot] of this.snapshots) {
      if (snapshot.isExpired(nowMs)) this.dropSnapshot(name)
    }
    for (const topic of this.topics.values()) topic.dropExpired(nowMs)
    for (const subscription of this.subscriptions.values()) subscription.queue.dropExpired(nowMs)
  }

  dropSnapshot(name: string): void {
    const snapshot = this.snapshots.get(name)
    if (snapshot === undefined) return
    this.snapshots.delete(name)
    const topic = this.topics.get(snapshot.resource.topic)
    topic?.snapshots.delete(snapshot)
    topic?.dropExpired(this.clock.nowMs())
    this.policies.forget(name)
    this.journal.remove('snapshot', name)
  }

  /** Sweeps once a minute from now on. */
  startSweeping(): void {
    const sweeper: Timed = {
      bucket: null,
      previous: null,
      next: null,
      due: () => {
        this.sweep()
        this.timers.set(sweeper, sweepMs)
      },
    }
    this.timers.set(sweeper, sweepMs)
  }

  cutStreams(): number {
    const sinks = [...this.subscriptions.values()].flatMap(({ dispatcher }) => dispatcher.sinks)
    for (const sink of sinks) sink.end(new RpcError('UNAVAILABLE', 'Fault: all streams were cut.'))
    return sinks.length
  }

  stats(): BrokerStats {
    const subscriptions = [...this.subscriptions.values()].map(({ name, queue, dispatcher }) => ({
      name,
      unackedMessages: queue.unackedMessages,
      unackedBytes: queue.unackedBytes,
      leasedMessages: queue.leasedMessages,
      streams: dispatcher.sinks.length,
    }))
    return { topics: this.topics.size, published: this.published, settled: this.settled, subscriptions }
  }

  close(): void {
    this.timers.close()
  }

  #deadLetter(subscription: Subscription, entry: Entry): boolean {
    const topic = this.topics.get(subscription.resource.deadLetterPolicy?.deadLetterTopic ?? '')
    if (topic === undefined) return false
    const { bytes, publishMs, orderingKey } = entry.message
    const project = subscription.name.split('/')[1] ?? ''
    const own = measureMessage(bytes, 0, bytes.length)
    const attributes = [
      encodeAttribute('CloudPubSubDeadLetterSourceDeliveryCount', String(entry.failures)),
      encodeAttribute('CloudPubSubDeadLetterSourceSubscription', subscription.name.split('/').at(-1) ?? ''),
      encodeAttribute('CloudPubSubDeadLetterSourceSubscriptionProject', project),
      encodeAttribute('CloudPubSubDeadLetterSourceTopicPublishTime', new Date(publishMs).toISOString()),
    ]
    const source = Buffer.concat([own.source.subarray(own.start, own.end), ...attributes])
    this.publish(topic, [{ source, start: 0, end: source.length, orderingKey }])
    // Nobody waits for it: until it is written, a restart finds the message where it was.
    void this.journal.flushed()?.catch(() => {})
    return true
  }
}
