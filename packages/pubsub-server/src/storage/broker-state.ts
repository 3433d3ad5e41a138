/**
 * The broker's state as records, and back.
 *
 * Records are applied the way the broker itself would have acted, to plain maps; the broker is filled from them once
 * at the end. Leases and delivery attempts are not kept: after a restart everything unacknowledged is due again.
 */
import type { Broker } from '../broker/broker.ts'
import { Topic } from '../broker/topic.ts'
import { parseFilter } from '../model/filter.ts'
import type { Filter } from '../model/filter.ts'
import type { Retained } from '../model/journal.ts'
import { restoreMessage } from '../model/message.ts'
import type { Message } from '../model/message.ts'
import type { PolicyResource, SchemaResource, SnapshotResource, SubscriptionResource, TopicResource } from '../model/resources.ts'
import { Snapshot } from '../model/snapshot.ts'
import { withTopicRetention } from '../operations/topics.ts'
import { toLogged, toLoggedList } from './record.ts'
import type { LoggedMessage, Record } from './record.ts'

/** Everything the broker holds, in an order in which it can be read back. */
export function* stateRecords(broker: Broker): Generator<Record> {
  for (const { name } of broker.schemas.all()) {
    yield { kind: 'put', type: 'schema', name, value: broker.schemas.revisions(name).toReversed() }
  }
  for (const topic of broker.topics.values()) {
    const { name } = topic.resource
    yield { kind: 'put', type: 'topic', name, value: topic.resource }
    if (topic.kept.length > 0) yield { kind: 'keep', topic: name, messages: [...topic.kept].map((message) => toLogged(message)) }
  }
  for (const { name, resource, queue } of broker.subscriptions.values()) {
    yield { kind: 'put', type: 'subscription', name, value: resource }
    yield { kind: 'reset', subscription: name, messages: toLoggedList([...queue.retained()]) }
  }
  for (const { resource, takenAt, unacked } of broker.snapshots.values()) {
    yield { kind: 'snapshot', resource, takenAt, messages: unacked.map((message) => toLogged(message)) }
  }
  for (const [name, policy] of broker.policies.entries()) {
    yield { kind: 'put', type: 'policy', name, value: { ...policy, etag: Buffer.from(policy.etag ?? []).toString('base64') } }
  }
}

interface RestoredTopic {
  resource: TopicResource
  readonly kept: Map<number, Message>
}

interface RestoredSubscription {
  resource: SubscriptionResource
  matches: Filter
  messages: Map<number, Retained>
}

interface RestoredSnapshot {
  resource: SnapshotResource
  readonly takenAt: number
  readonly unacked: readonly Message[]
}

/** Collects records and fills a new broker with what they amount to. */
export class StateReader {
  readonly #schemas = new Map<string, SchemaResource[]>()
  readonly #policies = new Map<string, PolicyResource>()
  readonly #topics = new Map<string, RestoredTopic>()
  readonly #subscriptions = new Map<string, RestoredSubscription>()
  readonly #snapshots = new Map<string, RestoredSnapshot>()
  /** A message that several resources hold is one object. */
  readonly #messages = new Map<number, Message>()
  #lastNumber = 0

  apply(record: Record): void {
    switch (record.kind) {
      case 'put':
        return this.#put(record)
      case 'remove':
        return this.#remove(record)
      case 'publish':
        return this.#publish(record.topic, record.messages)
      case 'settle':
        return this.#settle(record.subscription, record.numbers)
      case 'keep':
        for (const logged of record.messages) this.#topics.get(record.topic)?.kept.set(logged.number, this.#message(logged))
        return
      case 'snapshot': {
        const resource = record.resource as SnapshotResource
        const unacked = record.messages.map((logged) => this.#message(logged))
        this.#snapshots.set(resource.name, { resource, takenAt: record.takenAt, unacked })
        return
      }
      case 'reset': {
        const subscription = this.#subscriptions.get(record.subscription)
        if (subscription === undefined) return
        subscription.messages = new Map(
          record.messages.map((logged) => [logged.number, { message: this.#message(logged), isAcked: logged.isAcked }]),
        )
      }
    }
  }

  fill(broker: Broker): void {
    for (const [name, revisions] of this.#schemas) broker.schemas.restore(name, revisions)
    for (const [name, { resource, kept }] of this.#topics) {
      const topic = new Topic(resource)
      for (const message of kept.values()) topic.kept.push(message)
      broker.topics.set(name, topic)
    }
    for (const [name, { resource, messages }] of this.#subscriptions) {
      const topic = resource.detached === true ? undefined : broker.topics.get(resource.topic)
      const subscription = broker.openSubscription(withTopicRetention(resource, topic ?? null), topic ?? null)
      broker.subscriptions.set(name, subscription)
      topic?.subscriptions.add(subscription)
      subscription.queue.reset(messages.values())
    }
    for (const [name, { resource, takenAt, unacked }] of this.#snapshots) {
      const snapshot = new Snapshot(resource, takenAt, unacked)
      broker.snapshots.set(name, snapshot)
      broker.topics.get(resource.topic)?.snapshots.add(snapshot)
    }
    for (const [name, policy] of this.#policies) broker.policies.restore(name, policy)
    broker.lastNumber = Math.max(broker.lastNumber, this.#lastNumber)
    broker.sweep()
  }

  #put({ type, name, value }: Extract<Record, { kind: 'put' }>): void {
    if (type === 'schema') this.#schemas.set(name, value as SchemaResource[])
    else if (type === 'policy') {
      const policy = value as PolicyResource & { etag: string }
      this.#policies.set(name, { ...policy, etag: Buffer.from(policy.etag, 'base64') })
    } else if (type === 'topic') {
      const topic = this.#topics.get(name)
      if (topic === undefined) this.#topics.set(name, { resource: value as TopicResource, kept: new Map() })
      else topic.resource = value as TopicResource
    } else if (type === 'snapshot') {
      const snapshot = this.#snapshots.get(name)
      if (snapshot !== undefined) snapshot.resource = value as SnapshotResource
    } else {
      const resource = value as SubscriptionResource
      const messages = this.#subscriptions.get(name)?.messages ?? new Map<number, Retained>()
      this.#subscriptions.set(name, { resource, matches: parseFilter(resource.filter ?? ''), messages })
    }
  }

  #remove({ type, name }: Extract<Record, { kind: 'remove' }>): void {
    const maps = {
      schema: this.#schemas,
      policy: this.#policies,
      topic: this.#topics,
      subscription: this.#subscriptions,
      snapshot: this.#snapshots,
    }
    maps[type].delete(name)
  }

  #publish(topicName: string, logged: readonly LoggedMessage[]): void {
    const topic = this.#topics.get(topicName)
    const isKept =
      topic?.resource.messageRetentionDuration !== undefined ||
      [...this.#snapshots.values()].some(({ resource }) => resource.topic === topicName)
    const receivers = [...this.#subscriptions.values()].filter(
      ({ resource }) => resource.topic === topicName && resource.detached !== true,
    )
    for (const one of logged) {
      const message = this.#message(one)
      if (isKept) topic?.kept.set(message.number, message)
      for (const { matches, messages } of receivers) {
        if (matches(message.attributes)) messages.set(message.number, { message, isAcked: false })
      }
    }
  }

  #settle(name: string, numbers: readonly number[]): void {
    const subscription = this.#subscriptions.get(name)
    for (const number of numbers) {
      const held = subscription?.messages.get(number)
      if (subscription === undefined || held === undefined) continue
      if (subscription.resource.retainAckedMessages === true) subscription.messages.set(number, { ...held, isAcked: true })
      else {
        subscription.messages.delete(number)
        this.#messages.delete(number)
      }
    }
  }

  #message(logged: LoggedMessage): Message {
    let message = this.#messages.get(logged.number)
    if (message === undefined) {
      message = restoreMessage(logged.number, logged.publishMs, logged.bytes)
      this.#messages.set(logged.number, message)
      this.#lastNumber = Math.max(this.#lastNumber, logged.number)
    }
    return message
  }
}
