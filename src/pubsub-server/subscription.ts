/**
 * A subscription: its settings, its queue, and the streams it feeds.
 */
import { Dispatcher } from './dispatcher.ts'
import { parseFilter } from './filter.ts'
import type { Filter } from './filter.ts'
import type { Message } from './message.ts'
import { SubscriptionQueue } from './queue/subscription-queue.ts'
import type { QueueHost } from './queue/subscription-queue.ts'
import type { SubscriptionResource } from './resources.ts'
import { deliveryPolicyOf } from './subscription-settings.ts'
import type { Topic } from './topic.ts'

export type SubscriptionHost = Omit<QueueHost, 'onReady'>

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
