/**
 * Topics and the subscriptions of each.
 *
 * A topic keeps messages while its own retention or a snapshot needs them; otherwise only subscriptions hold them.
 */
import { parseFilter } from '../model/filter.ts'
import type { Filter } from '../model/filter.ts'
import type { Message } from '../model/message.ts'
import { toMs } from '../model/resources.ts'
import type { SubscriptionResource, TopicResource } from '../model/resources.ts'
import type { Snapshot } from '../model/snapshot.ts'
import { Deque } from '../queue/deque.ts'
import { Dispatcher } from '../queue/dispatcher.ts'
import { SubscriptionQueue } from '../queue/subscription-queue.ts'
import type { QueueHost } from '../queue/subscription-queue.ts'
import { deliveryPolicyOf } from './subscription-settings.ts'

/** Its settings, its subscriptions, and the messages it keeps for those who seek. */
export class Topic {
  resource: TopicResource
  readonly subscriptions: Set<Subscription> = new Set()
  readonly snapshots: Set<Snapshot> = new Set()
  readonly kept: Deque<Message> = new Deque()

  constructor(resource: TopicResource) {
    this.resource = resource
  }

  get retentionMs(): number {
    const duration = this.resource.messageRetentionDuration
    return duration === undefined ? 0 : toMs(duration)
  }

  keep(message: Message): void {
    if (this.retentionMs > 0 || this.snapshots.size > 0) this.kept.push(message)
  }

  /** Drops what neither retention nor a snapshot needs any more. */
  dropExpired(nowMs: number): void {
    let neededFrom = Infinity
    for (const snapshot of this.snapshots) neededFrom = Math.min(neededFrom, snapshot.takenAt)
    for (let message = this.kept.at(0); message !== undefined; message = this.kept.at(0)) {
      if (message.publishMs + this.retentionMs > nowMs || message.number > neededFrom) return
      this.kept.shift()
    }
  }
}

export type SubscriptionHost = Omit<QueueHost, 'onReady'>

/** Its settings, its queue, and the streams it feeds. */
export class Subscription {
  readonly queue: SubscriptionQueue
  readonly dispatcher: Dispatcher
  /** Null once the topic was deleted or the subscription detached. */
  topic: Topic | null
  /** After a seek into the future: what is published before that time counts as acknowledged. */
  discardsBeforeMs = 0
  #resource: SubscriptionResource
  readonly #filter: Filter | null

  constructor(resource: SubscriptionResource, topic: Topic | null, host: SubscriptionHost) {
    this.#resource = resource
    this.topic = topic
    this.#filter = (resource.filter ?? '') === '' ? null : parseFilter(resource.filter ?? '')
    const queueHost: QueueHost = { ...host, onReady: () => this.dispatcher.schedule() }
    this.queue = new SubscriptionQueue(deliveryPolicyOf(resource), queueHost)
    this.dispatcher = new Dispatcher(this.queue)
  }

  get name(): string {
    return this.#resource.name
  }

  get resource(): SubscriptionResource {
    return this.#resource
  }

  /** Takes effect for what is delivered from now on. */
  set resource(resource: SubscriptionResource) {
    this.#resource = resource
    this.queue.policy = deliveryPolicyOf(resource)
    if (!this.queue.policy.retainsAcked) this.queue.dropAcked()
  }

  /** A message that the filter does not match counts as acknowledged. */
  matches(message: Message): boolean {
    if (message.publishMs < this.discardsBeforeMs) return false
    return this.#filter === null || this.#filter(message.attributes)
  }
}
