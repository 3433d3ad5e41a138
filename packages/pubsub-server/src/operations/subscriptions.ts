/** Creating, changing, detaching and deleting subscriptions. */
import type { Broker } from '../broker/broker.ts'
import { changeableSubscriptionFields, resolveSubscription } from '../broker/subscription-settings.ts'
import type { Subscription } from '../broker/topic.ts'
import { applyFieldMask } from '../model/field-mask.ts'
import { checkName } from '../model/names.ts'
import type { SubscriptionResource } from '../model/resources.ts'
import { alreadyExists, notFound, RpcError } from '../model/rpc-error.ts'
import { withTopicRetention } from './topics.ts'

/** A new subscription sees what is published from now on. */
export function createSubscription(broker: Broker, given: SubscriptionResource): SubscriptionResource {
  checkName('subscriptions', given.name)
  checkName('topics', given.topic)
  if (broker.subscriptions.has(given.name)) throw alreadyExists('subscription', given.name)
  const topic = broker.topic(given.topic)
  const resource = withTopicRetention(resolveSubscription({ ...given, detached: false }), topic)
  checkDeadLetterTopic(broker, resource)
  const subscription = broker.openSubscription(resource, topic)
  broker.subscriptions.set(resource.name, subscription)
  topic.subscriptions.add(subscription)
  broker.journal.put('subscription', resource.name, resource)
  return resource
}

export function updateSubscription(broker: Broker, patch: SubscriptionResource, paths: readonly string[]): SubscriptionResource {
  const subscription = broker.subscription(patch.name)
  const changed = applyFieldMask({ current: subscription.resource, patch, paths, changeable: changeableSubscriptionFields })
  const resource = resolveSubscription(changed)
  checkDeadLetterTopic(broker, resource)
  subscription.resource = resource
  broker.journal.put('subscription', resource.name, resource)
  return resource
}

export function deleteSubscription(broker: Broker, name: string): void {
  const subscription = broker.subscription(name)
  endStreams(subscription, notFound('subscription', name))
  subscription.topic?.subscriptions.delete(subscription)
  broker.subscriptions.delete(name)
  subscription.queue.reset([])
  broker.policies.forget(name)
  broker.journal.remove('subscription', name)
}

/** Cuts a subscription off its topic and drops its backlog, for good. */
export function detachSubscription(broker: Broker, name: string): void {
  const subscription = broker.subscription(name)
  subscription.topic?.subscriptions.delete(subscription)
  subscription.topic = null
  subscription.resource = { ...subscription.resource, detached: true }
  subscription.queue.reset([])
  endStreams(subscription, detachedError(name))
  broker.journal.put('subscription', name, subscription.resource)
  broker.journal.reset(name, [])
}

/** Throws when messages cannot be taken from the subscription. */
export function checkAttached(subscription: Subscription): void {
  if (subscription.resource.detached === true) throw detachedError(subscription.name)
}

function detachedError(name: string): RpcError {
  return new RpcError(
    'FAILED_PRECONDITION',
    `The subscription is detached from its topic (resource=${name}): create another one.`,
  )
}

function endStreams(subscription: Subscription, error: RpcError): void {
  for (const sink of subscription.dispatcher.sinks) sink.end(error)
}

function checkDeadLetterTopic(broker: Broker, resource: SubscriptionResource): void {
  const name = resource.deadLetterPolicy?.deadLetterTopic
  if (name === undefined) return
  checkName('topics', name)
  broker.topic(name)
}
