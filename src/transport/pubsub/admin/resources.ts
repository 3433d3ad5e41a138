/**
 * Topics, subscriptions and schemas as plain data, and how they are written in the protocol.
 *
 * Both directions stand beside each other, field by field, so that what provisioning wants and what the service has can be
 * compared as values.
 */

export interface TopicSettings {
  /** The short name: `video.events`. */
  readonly name: string
  /** How long the topic itself keeps messages; zero: it does not. */
  readonly retentionSeconds: number
  readonly schema: { readonly name: string; readonly encoding: 'JSON' | 'BINARY' } | undefined
}

export interface SubscriptionSettings {
  readonly name: string
  readonly topic: string
  readonly ackDeadlineSeconds: number
  readonly retentionSeconds: number
  readonly isRetainingAcked: boolean
  readonly isOrdered: boolean
  readonly isExactlyOnce: boolean
  /** Which messages it gets, in the language of Pub/Sub; the service acknowledges the others itself. `undefined`: it gets all. */
  readonly filter: string | undefined
  /** The back-off between deliveries of a message; `undefined`: at once. */
  readonly retry: { readonly minSeconds: number; readonly maxSeconds: number } | undefined
  readonly deadLetter: { readonly topic: string; readonly maxAttempts: number } | undefined
  /** After how long without use the service deletes it; zero: never. */
  readonly expiresAfterSeconds: number
}

export interface SchemaSettings {
  readonly name: string
  readonly type: 'AVRO' | 'PROTOCOL_BUFFER'
  readonly definition: string
}

export interface WireDuration {
  readonly seconds: string | number
}

export interface WireTopic {
  readonly name: string
  readonly messageRetentionDuration?: WireDuration | null
  readonly schemaSettings?: { readonly schema: string; readonly encoding: string } | null
}

export interface WireSubscription {
  readonly name: string
  readonly topic: string
  readonly ackDeadlineSeconds: number
  readonly messageRetentionDuration?: WireDuration | null
  readonly retainAckedMessages: boolean
  readonly enableMessageOrdering: boolean
  readonly enableExactlyOnceDelivery: boolean
  readonly filter: string
  readonly retryPolicy?: { readonly minimumBackoff?: WireDuration | null; readonly maximumBackoff?: WireDuration | null } | null
  readonly deadLetterPolicy?: { readonly deadLetterTopic: string; readonly maxDeliveryAttempts: number } | null
  readonly expirationPolicy?: { readonly ttl?: WireDuration | null } | null
}

export const topicFields: Readonly<Record<keyof Omit<TopicSettings, 'name'>, string>> = {
  retentionSeconds: 'message_retention_duration',
  schema: 'schema_settings',
}

/** Without those that cannot be changed: to change order, topic or filter, a subscription is made anew. */
export const subscriptionFields: Readonly<
  Record<keyof Omit<SubscriptionSettings, 'name' | 'topic' | 'isOrdered' | 'filter'>, string>
> = {
  ackDeadlineSeconds: 'ack_deadline_seconds',
  retentionSeconds: 'message_retention_duration',
  isRetainingAcked: 'retain_acked_messages',
  isExactlyOnce: 'enable_exactly_once_delivery',
  retry: 'retry_policy',
  deadLetter: 'dead_letter_policy',
  expiresAfterSeconds: 'expiration_policy',
}

export function toWireTopic(topic: TopicSettings, paths: Paths): WireTopic {
  const { schema, retentionSeconds } = topic
  return {
    name: paths.topic(topic.name),
    messageRetentionDuration: retentionSeconds === 0 ? null : { seconds: retentionSeconds },
    schemaSettings: schema === undefined ? null : { schema: paths.schema(schema.name), encoding: schema.encoding },
  }
}

export function fromWireTopic(wire: WireTopic): TopicSettings {
  const { schemaSettings: schema } = wire
  return {
    name: shortName(wire.name),
    retentionSeconds: secondsOf(wire.messageRetentionDuration),
    schema:
      schema == null ? undefined : { name: shortName(schema.schema), encoding: schema.encoding === 'BINARY' ? 'BINARY' : 'JSON' },
  }
}

export function toWireSubscription(subscription: SubscriptionSettings, paths: Paths): WireSubscription {
  const { retry, deadLetter, expiresAfterSeconds } = subscription
  return {
    name: paths.subscription(subscription.name),
    topic: paths.topic(subscription.topic),
    ackDeadlineSeconds: subscription.ackDeadlineSeconds,
    messageRetentionDuration: { seconds: subscription.retentionSeconds },
    retainAckedMessages: subscription.isRetainingAcked,
    enableMessageOrdering: subscription.isOrdered,
    enableExactlyOnceDelivery: subscription.isExactlyOnce,
    filter: subscription.filter ?? '',
    retryPolicy:
      retry === undefined
        ? null
        : { minimumBackoff: { seconds: retry.minSeconds }, maximumBackoff: { seconds: retry.maxSeconds } },
    deadLetterPolicy:
      deadLetter === undefined
        ? null
        : { deadLetterTopic: paths.topic(deadLetter.topic), maxDeliveryAttempts: deadLetter.maxAttempts },
    // A policy without a time to live: never. No policy at all would mean the service's 31 days.
    expirationPolicy: expiresAfterSeconds === 0 ? {} : { ttl: { seconds: expiresAfterSeconds } },
  }
}

export function fromWireSubscription(wire: WireSubscription): SubscriptionSettings {
  const { retryPolicy: retry, deadLetterPolicy: deadLetter, expirationPolicy } = wire
  return {
    name: shortName(wire.name),
    topic: shortName(wire.topic),
    ackDeadlineSeconds: wire.ackDeadlineSeconds,
    retentionSeconds: secondsOf(wire.messageRetentionDuration),
    isRetainingAcked: wire.retainAckedMessages,
    isOrdered: wire.enableMessageOrdering,
    isExactlyOnce: wire.enableExactlyOnceDelivery,
    filter: wire.filter === '' ? undefined : wire.filter,
    retry:
      retry == null ? undefined : { minSeconds: secondsOf(retry.minimumBackoff), maxSeconds: secondsOf(retry.maximumBackoff) },
    deadLetter:
      deadLetter == null
        ? undefined
        : { topic: shortName(deadLetter.deadLetterTopic), maxAttempts: deadLetter.maxDeliveryAttempts },
    expiresAfterSeconds: expirationPolicy == null ? defaultExpirySeconds : secondsOf(expirationPolicy.ttl),
  }
}

/** Short names → full ones. */
export interface Paths {
  topic(name: string): string
  subscription(name: string): string
  schema(name: string): string
}

const defaultExpirySeconds = 31 * 86_400

function secondsOf(duration: WireDuration | null | undefined): number {
  return Number(duration?.seconds ?? 0)
}

/** `projects/p/topics/video.events` → `video.events`; a deleted topic is `_deleted-topic_`. */
function shortName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1)
}
