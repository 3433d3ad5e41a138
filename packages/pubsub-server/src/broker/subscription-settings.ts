/** What a subscription may be set to, its defaults, and what its settings mean to the queue. */
import { parseFilter } from '../model/filter.ts'
import { checkLabels } from '../model/names.ts'
import { toMs } from '../model/resources.ts'
import type { Duration, SubscriptionResource } from '../model/resources.ts'
import { invalid, RpcError } from '../model/rpc-error.ts'
import type { DeliveryPolicy } from '../queue/delivery-policy.ts'

const minuteMs = 60_000
const dayMs = 24 * 60 * minuteMs

/** The fields an update may change; the others are fixed for the life of a subscription. */
export const changeableSubscriptionFields: ReadonlySet<string> = new Set([
  'pushConfig',
  'bigqueryConfig',
  'cloudStorageConfig',
  'bigtableConfig',
  'ackDeadlineSeconds',
  'retainAckedMessages',
  'messageRetentionDuration',
  'labels',
  'expirationPolicy',
  'deadLetterPolicy',
  'retryPolicy',
  'enableExactlyOnceDelivery',
  'messageTransforms',
])

/** The settings with defaults filled in; throws where Google would refuse them. */
export function resolveSubscription(given: SubscriptionResource): SubscriptionResource {
  refuseUnsupported(given)
  checkLabels(given.labels)
  parseFilter(given.filter ?? '')
  const ackDeadlineSeconds =
    given.ackDeadlineSeconds === undefined || given.ackDeadlineSeconds === 0 ? 10 : given.ackDeadlineSeconds
  if (ackDeadlineSeconds < 10 || ackDeadlineSeconds > 600) {
    throw invalid(`Invalid ack deadline given: ${ackDeadlineSeconds}. It must be from 10 to 600 seconds.`)
  }
  const messageRetentionDuration = given.messageRetentionDuration ?? { seconds: (7 * dayMs) / 1000 }
  checkRange('message_retention_duration', messageRetentionDuration, 10 * minuteMs, 31 * dayMs)
  const expirationPolicy = given.expirationPolicy ?? { ttl: { seconds: (31 * dayMs) / 1000 } }
  if (expirationPolicy.ttl !== undefined) {
    checkRange('expiration_policy.ttl', expirationPolicy.ttl, Math.max(dayMs, toMs(messageRetentionDuration)), Infinity)
  }
  return {
    ...given,
    ackDeadlineSeconds,
    messageRetentionDuration,
    expirationPolicy,
    ...resolveRetry(given),
    ...resolveDeadLetter(given),
    pushConfig: given.pushConfig ?? {},
    state: 'ACTIVE',
  }
}

export function deliveryPolicyOf(resource: SubscriptionResource): DeliveryPolicy {
  const { retryPolicy, deadLetterPolicy } = resource
  return {
    isOrdered: resource.enableMessageOrdering === true,
    isExactlyOnce: resource.enableExactlyOnceDelivery === true,
    retainsAcked: resource.retainAckedMessages === true,
    retentionMs: toMs(resource.messageRetentionDuration ?? {}),
    retry:
      retryPolicy === undefined
        ? null
        : { minMs: toMs(retryPolicy.minimumBackoff ?? {}), maxMs: toMs(retryPolicy.maximumBackoff ?? {}) },
    maxDeliveryAttempts: deadLetterPolicy?.maxDeliveryAttempts ?? 0,
  }
}

/** Throws unless the duration lies within the bounds, both included. */
export function checkRange(field: string, duration: Duration, minMs: number, maxMs: number): void {
  const ms = toMs(duration)
  if (ms < minMs || ms > maxMs) {
    throw invalid(
      `Invalid ${field}: ${ms / 1000}s. It must be from ${minMs / 1000}s${maxMs === Infinity ? ' up' : ` to ${maxMs / 1000}s`}.`,
    )
  }
}

function resolveRetry(given: SubscriptionResource): Partial<SubscriptionResource> {
  if (given.retryPolicy === undefined) return {}
  const minimumBackoff = given.retryPolicy.minimumBackoff ?? { seconds: 10 }
  const maximumBackoff = given.retryPolicy.maximumBackoff ?? { seconds: 600 }
  checkRange('retry_policy.minimum_backoff', minimumBackoff, 0, 600_000)
  checkRange('retry_policy.maximum_backoff', maximumBackoff, toMs(minimumBackoff), 600_000)
  return { retryPolicy: { minimumBackoff, maximumBackoff } }
}

function resolveDeadLetter(given: SubscriptionResource): Partial<SubscriptionResource> {
  if (given.deadLetterPolicy === undefined) return {}
  const { deadLetterTopic = '', maxDeliveryAttempts: attempts = 0 } = given.deadLetterPolicy
  if (deadLetterTopic === '') throw invalid('dead_letter_policy needs a dead_letter_topic: projects/<project>/topics/<id>.')
  const maxDeliveryAttempts = attempts === 0 ? 5 : attempts
  if (maxDeliveryAttempts < 5 || maxDeliveryAttempts > 100) {
    throw invalid(`Invalid dead_letter_policy.max_delivery_attempts: ${attempts}. It must be from 5 to 100.`)
  }
  return { deadLetterPolicy: { deadLetterTopic, maxDeliveryAttempts } }
}

/** What this server does not do is refused, never silently ignored. */
function refuseUnsupported(given: SubscriptionResource): void {
  const unsupported =
    (given.pushConfig?.pushEndpoint ?? '') !== ''
      ? 'push_config'
      : given.bigqueryConfig !== undefined
        ? 'bigquery_config'
        : given.cloudStorageConfig !== undefined
          ? 'cloud_storage_config'
          : given.bigtableConfig !== undefined
            ? 'bigtable_config'
            : (given.messageTransforms ?? []).length > 0
              ? 'message_transforms'
              : undefined
  if (unsupported !== undefined) {
    throw new RpcError(
      'UNIMPLEMENTED',
      `This server does not support ${unsupported}: it serves pull subscriptions. Leave it out.`,
    )
  }
}
