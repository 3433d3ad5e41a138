/**
 * What Kafka's errors mean to us: refused for what it is, to be repeated, or out of our hands for now.
 *
 * Only what would be refused again, whoever sends it and whenever, is a rejection of the message. A missing topic or permission
 * is the trouble of one topic, a wrong clock or a full disk an outage: somebody repairs them, and then the same message goes out.
 */
import { errorMessage, isWaybillError, WaybillError, type ErrorCode } from '../../../core/errors.ts'

const rejections = new Set(['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE', 'INVALID_RECORD', 'UNSUPPORTED_FOR_MESSAGE_FORMAT'])

/** Sending the same again can help within moments: another leader is found, a replica catches up. */
const passing = new Set([
  'CORRUPT_MESSAGE',
  'UNKNOWN_TOPIC_OR_PARTITION',
  'LEADER_NOT_AVAILABLE',
  'NOT_LEADER_OR_FOLLOWER',
  'REQUEST_TIMED_OUT',
  'REPLICA_NOT_AVAILABLE',
  'NETWORK_EXCEPTION',
  'NOT_ENOUGH_REPLICAS',
  'NOT_ENOUGH_REPLICAS_AFTER_APPEND',
  'KAFKA_STORAGE_ERROR',
  'FENCED_LEADER_EPOCH',
  'UNKNOWN_LEADER_EPOCH',
  'THROTTLING_QUOTA_EXCEEDED',
  'COORDINATOR_LOAD_IN_PROGRESS',
  'COORDINATOR_NOT_AVAILABLE',
  'NOT_COORDINATOR',
])

/** The group goes on without us: our partitions may be another's. */
const fencings = new Set(['ILLEGAL_GENERATION', 'UNKNOWN_MEMBER_ID', 'FENCED_INSTANCE_ID'])

/** Whoever is told so may not write to any topic. */
const clusterWide = new Set(['CLUSTER_AUTHORIZATION_FAILED', 'SASL_AUTHENTICATION_FAILED'])

/** Nothing that waiting mends. */
const permanent = new Set([
  'INVALID_TOPIC_EXCEPTION',
  'UNKNOWN_TOPIC_OR_PARTITION',
  'TOPIC_AUTHORIZATION_FAILED',
  'GROUP_AUTHORIZATION_FAILED',
  'CLUSTER_AUTHORIZATION_FAILED',
  'INVALID_GROUP_ID',
  'INVALID_SESSION_TIMEOUT',
  'INCONSISTENT_GROUP_PROTOCOL',
  'UNSUPPORTED_VERSION',
])

const meanings: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  MESSAGE_TOO_LARGE: [
    'TOO_LARGE',
    'Send a reference to the data instead (claim check), or raise max.message.bytes of the topic.',
  ],
  RECORD_LIST_TOO_LARGE: ['TOO_LARGE', 'Send a reference to the data instead (claim check).'],
  INVALID_RECORD: ['REJECTED', 'The topic refuses it as it is: a compacted topic needs a key.'],
  INVALID_TIMESTAMP: ['UNAVAILABLE', 'Records have the time at which they are sent: check the clock of this host.'],
  UNSUPPORTED_FOR_MESSAGE_FORMAT: ['REJECTED', 'The topic does not take records with headers.'],
  UNKNOWN_TOPIC_OR_PARTITION: ['NOT_FOUND', 'Create the topic.'],
  UNKNOWN_TOPIC_ID: ['UNAVAILABLE', 'The topic was deleted; under its name there may be another.'],
  INVALID_TOPIC_EXCEPTION: ['INVALID_OPTION', 'Kafka takes no topic of that name.'],
  TOPIC_AUTHORIZATION_FAILED: ['FORBIDDEN', 'Grant this client the right on the topic.'],
  GROUP_AUTHORIZATION_FAILED: ['FORBIDDEN', 'Grant this client the right on the group.'],
  CLUSTER_AUTHORIZATION_FAILED: ['FORBIDDEN', 'Grant this client IDEMPOTENT_WRITE on the cluster.'],
  SASL_AUTHENTICATION_FAILED: ['FORBIDDEN', 'Check the credentials.'],
  REQUEST_TIMED_OUT: ['TIMEOUT', 'The replicas did not confirm in time.'],
  NOT_ENOUGH_REPLICAS: ['UNAVAILABLE', 'Fewer replicas are in sync than min.insync.replicas asks for.'],
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: ['UNAVAILABLE', 'Fewer replicas are in sync than min.insync.replicas asks for.'],
  INCONSISTENT_GROUP_PROTOCOL: ['REFUSED', 'The group has members of another kind; give this consumer a group of its own.'],
  INVALID_SESSION_TIMEOUT: ['INVALID_OPTION', "sessionTimeoutMs is outside the broker's group.min/max.session.timeout.ms."],
  FENCED_INSTANCE_ID: ['REFUSED', 'Another process uses the same instanceId; each needs its own.'],
  TOPIC_ALREADY_EXISTS: ['REFUSED', 'The topic is there already.'],
  INVALID_REPLICATION_FACTOR: ['INVALID_OPTION', 'The cluster has fewer nodes than that.'],
}

/** Our error for Kafka's; `what` says which call: "produce to order.events/3". */
export function kafkaError(
  name: string,
  what: string,
  options: { readonly said?: string; readonly cause?: unknown } = {},
): WaybillError {
  const [code, advice] = meanings[name] ?? (['UNAVAILABLE', ''] as const)
  const said = options.said === undefined || options.said === '' ? '' : ` (${options.said.slice(0, 300)})`
  const cause = options.cause === undefined ? {} : { cause: options.cause }
  return new WaybillError(code, `Kafka, ${what}: ${name}${said}. ${advice}`.trimEnd(), { ...cause, details: { kafka: name } })
}

/** What the client's errors have. */
interface ClientError {
  readonly code?: string
  /** Those of an answer; the first says what the broker called it. */
  readonly errors?: readonly (ClientError | undefined)[]
  readonly apiId?: string
  readonly serverErrorMessage?: string | null
}

/**
 * Our error for a request that nobody answered. The client says only that the connection failed; what lies deepest says why: refused
 * credentials, a certificate, a closed port. Whoever hangs up while we authenticate has refused nothing.
 */
export function noAnswer(cause: unknown, what: string): WaybillError {
  if (isWaybillError(cause)) return cause
  const reasons = reasonsOf(cause)
  const deepest = (reasons.at(-1) ?? {}) as ClientError
  const { apiId, serverErrorMessage } = deepest.errors?.[0] ?? deepest
  if (apiId !== undefined) return kafkaError(apiId, what, { said: serverErrorMessage ?? '', cause })
  const text = reasons.map(errorMessage).join(' ')
  if (deepest.code === 'PLT_KFK_AUTHENTICATION') return kafkaError('SASL_AUTHENTICATION_FAILED', what, { said: text, cause })
  return new WaybillError('UNAVAILABLE', `Kafka, ${what}: ${text.slice(0, 300)}`, { cause })
}

/** The error and what it came from, down to the first. */
function reasonsOf(error: unknown): readonly unknown[] {
  const cause = error instanceof Error ? error.cause : undefined
  return cause === undefined ? [error] : [error, ...reasonsOf(cause)]
}

/** The name of Kafka's error, or undefined if no answer came. */
export function kafkaErrorName(error: unknown): string | undefined {
  const name = isWaybillError(error) ? error.details['kafka'] : undefined
  return typeof name === 'string' ? name : undefined
}

/** Whether Kafka refused the records for what they are. */
export function isRejection(name: string): boolean {
  return rejections.has(name)
}

/** Whether it says that nothing was appended. Other errors leave that open: a leader may append, and lead no more when it answers. */
export function isUnappended(name: string | undefined): boolean {
  return name === 'NOT_ENOUGH_REPLICAS'
}

/** Whether the trouble is one topic's: it is missing, closed to this client, or cannot hold what it confirms. */
export function isUnroutable(error: Error): boolean {
  if (isWaybillError(error, 'FORBIDDEN')) return !clusterWide.has(kafkaErrorName(error) ?? '')
  return isWaybillError(error, 'NOT_FOUND') || isWaybillError(error, 'REFUSED') || isWaybillError(error, 'INVALID_OPTION')
}

/** Whether the same batch may be accepted in a moment; no answer at all counts as such. */
export function isPassing(name: string | undefined): boolean {
  return name === undefined || passing.has(name)
}

/** Whether the group has gone on without this member. */
export function isFencing(error: unknown): error is WaybillError {
  return fencings.has(kafkaErrorName(error) ?? '')
}

/** Whether trying the same again is of no use before somebody has changed something. */
export function isPermanent(error: unknown): boolean {
  return permanent.has(kafkaErrorName(error) ?? '') || isWaybillError(error, 'MISSING_PACKAGE')
}
