/**
 * What a service needs in a Pub/Sub project, worked out from its streams and consumers as plain data.
 *
 * Each stream has its topic, which others may share. Each consumer of a topic has one subscription, with a dead-letter topic
 * of its own that has a subscription too: what is published to a topic without one is lost. A consumer that stops at what fails
 * has none: Pub/Sub would take away what it stopped at, and what is behind it would go on. Every grant is on one resource, never
 * on the project.
 *
 * Nothing is lost while a topic is made beside relays that wait for it. A subscription gets what is published after it was made. So a
 * topic that is to have subscriptions keeps everything until it has them, and each of them is sought to the beginning. What a seek has
 * made due is delivered, whatever the topic keeps later.
 *
 *   topic         missing ──create──▶ provisional ──its subscriptions are there──▶ wanted
 *   subscription  missing ──create──▶ provisional ──seek─────────────────────────▶ wanted
 *
 * No configuration asks for the provisional retention. A topic that has it was left by a run that was broken off, and the next one goes
 * on there; a topic that has another is in service and is never sought.
 */
import { WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import type { StreamHead } from '../../core/event/stream.ts'
import type { PubsubGrant } from '../../transport/pubsub/admin/admin.ts'
import { usualLeaseMs } from '../../transport/pubsub/receive/lease-keeper.ts'
import { deadLetterName, subscriptionName } from '../../transport/pubsub/client/names.ts'
import type { SchemaSettings, SubscriptionSettings, TopicSettings } from '../../transport/pubsub/admin/resources.ts'

/** A stream that this service publishes or reads. */
export type ProvisionedStream = Pick<StreamHead, 'topic' | 'ordering'>

export interface ProvisionedConsumer {
  readonly name: string
  readonly streams: readonly ProvisionedStream[]
  /** Exactly-once delivery within its subscriptions, that of its dead letters too: one transport receives from all. @default false */
  readonly exactlyOnce?: boolean
  /** As the consumer's own. With `stop` its subscriptions have no dead-letter policy. @default 'dead-letter' */
  readonly onPoison?: 'dead-letter' | 'stop'
  /** Who may receive: `serviceAccount:catalog@project.iam.gserviceaccount.com`. @default [] */
  readonly subscribers?: readonly string[]
}

export interface ProvisionOptions {
  /** The streams that this service publishes: their topics are its own. @default [] */
  readonly streams?: readonly ProvisionedStream[]
  /** @default [] */
  readonly consumers?: readonly ProvisionedConsumer[]
  /** Who may publish to the topics of `streams`. @default [] */
  readonly publishers?: readonly string[]
  /** The project's number: it names Pub/Sub's own account, which moves dead letters. Without it those grants are left out. */
  readonly projectNumber?: string
  /** Schemas that topics enforce, by topic. @default {} */
  readonly schemas?: Readonly<Record<string, SchemaSettings & { readonly encoding: 'JSON' | 'BINARY' }>>
  /** How long subscriptions keep messages, acknowledged ones too, for a replay. 10 minutes to 31 days. @default 604_800 */
  readonly retentionSeconds?: number
  /**
   * How long the topics of `streams` keep messages: as far back reaches a rebuild, whose subscription is made for it. 10 minutes to
   * 31 days; 0 keeps none, and costs no storage. @default `retentionSeconds`
   */
  readonly topicRetentionSeconds?: number
  /** How long dead letters are kept. @default 2_678_400 */
  readonly deadLetterRetentionSeconds?: number
  /** Of subscriptions with exactly-once delivery 60 unless set. The `leaseMs` of a transport goes before it. @default 15 */
  readonly ackDeadlineSeconds?: number
  /** Back-off between deliveries of one message. @default { minSeconds: 1, maxSeconds: 60 } */
  readonly retry?: { readonly minSeconds: number; readonly maxSeconds: number }
  /**
   * Deliveries before Pub/Sub moves a message to the dead letters, 5 to 100. It counts each one, also of what nobody failed at: let
   * our own attempts end long before. @default 100
   */
  readonly maxAttempts?: number
}

export interface DesiredResources {
  readonly schemas: readonly SchemaSettings[]
  readonly topics: readonly TopicSettings[]
  readonly subscriptions: readonly SubscriptionSettings[]
  readonly grants: readonly PubsubGrant[]
  /** What could not be worked out, in sentences. */
  readonly notes: readonly string[]
}

const optionNames = [
  'streams',
  'consumers',
  'publishers',
  'projectNumber',
  'schemas',
  'retentionSeconds',
  'topicRetentionSeconds',
  'deadLetterRetentionSeconds',
  'ackDeadlineSeconds',
  'retry',
  'maxAttempts',
]
const defaultRetentionSeconds = 604_800
const publisherRole = 'roles/pubsub.publisher'
const subscriberRole = 'roles/pubsub.subscriber'

export function desiredResources(options: ProvisionOptions): DesiredResources {
  refuseUnknown('provision', options, optionNames)
  checkRanges(options)
  const { streams = [], consumers = [], publishers = [], schemas = {}, projectNumber } = options
  const { retentionSeconds = defaultRetentionSeconds, topicRetentionSeconds = retentionSeconds } = options
  const topics = unique(streams.map(({ topic }) => topic)).map((name): TopicSettings => {
    const schema = schemas[name]
    return {
      name,
      retentionSeconds: topicRetentionSeconds,
      schema: schema === undefined ? undefined : { name: schema.name, encoding: schema.encoding },
    }
  })
  consumers.forEach(checkPoison)
  const parts = consumers.flatMap((consumer) => readTopics(consumer).map((topic) => forConsumer(consumer, topic, options)))
  const isMissingAgent = projectNumber === undefined && parts.some(({ subscriptions }) => subscriptions.some(hasDeadLetters))
  return {
    schemas: Object.values(schemas).map(({ name, type, definition }) => ({ name, type, definition })),
    // Relays may wait for the topics of streams: those come last, with little between them and their subscriptions.
    topics: [...parts.flatMap((part) => part.topics), ...topics],
    subscriptions: parts.flatMap((part) => part.subscriptions),
    grants: [
      ...topics.flatMap(({ name }) =>
        publishers.map((member): PubsubGrant => ({ kind: 'topic', name, role: publisherRole, member })),
      ),
      ...parts.flatMap((part) => part.grants),
    ],
    notes: isMissingAgent
      ? [
          'projectNumber is not set, so the grants that let Pub/Sub move dead letters are left out. Without them nothing is dead-lettered.',
        ]
      : [],
  }
}

/** Pub/Sub's own account in a project. */
export function serviceAgent(projectNumber: string): string {
  return `serviceAccount:service-${projectNumber}@gcp-sa-pubsub.iam.gserviceaccount.com`
}

interface ReadTopic {
  readonly topic: string
  readonly isOrdered: boolean
}

/** The topics of a consumer's streams, each once. Streams that share one share its subscription, ordered if any of them needs it. */
function readTopics({ streams }: ProvisionedConsumer): ReadTopic[] {
  return unique(streams.map(({ topic }) => topic)).map((topic) => ({
    topic,
    isOrdered: streams.some((stream) => stream.topic === topic && stream.ordering !== 'version'),
  }))
}

function forConsumer(consumer: ProvisionedConsumer, { topic, isOrdered }: ReadTopic, options: ProvisionOptions) {
  const {
    retentionSeconds = defaultRetentionSeconds,
    deadLetterRetentionSeconds = 2_678_400,
    ackDeadlineSeconds = usualLeaseMs(consumer.exactlyOnce ?? false) / 1_000,
    maxAttempts = 100,
  } = options
  const { retry = { minSeconds: 1, maxSeconds: 60 }, projectNumber } = options
  const name = subscriptionName(topic, consumer.name)
  const deadTopic = deadLetterName(topic, consumer.name)
  const stops = consumer.onPoison === 'stop'
  const main: SubscriptionSettings = {
    name,
    topic,
    ackDeadlineSeconds,
    retentionSeconds,
    isRetainingAcked: true,
    isOrdered,
    isExactlyOnce: consumer.exactlyOnce ?? false,
    filter: undefined,
    retry,
    deadLetter: stops ? undefined : { topic: deadTopic, maxAttempts },
    expiresAfterSeconds: 0,
  }
  const dead: SubscriptionSettings = {
    ...main,
    name: subscriptionName(deadTopic, consumer.name),
    topic: deadTopic,
    retentionSeconds: deadLetterRetentionSeconds,
    isRetainingAcked: false,
    deadLetter: undefined,
  }
  const subscriptions = stops ? [main] : [main, dead]
  const readers = (consumer.subscribers ?? []).flatMap((member) =>
    subscriptions.map((subscription): PubsubGrant => ({
      kind: 'subscription',
      name: subscription.name,
      role: subscriberRole,
      member,
    })),
  )
  const agent = projectNumber === undefined ? undefined : serviceAgent(projectNumber)
  const mover: PubsubGrant[] =
    agent === undefined || stops
      ? []
      : [
          { kind: 'topic', name: deadTopic, role: publisherRole, member: agent },
          { kind: 'subscription', name, role: subscriberRole, member: agent },
        ]
  const topics: TopicSettings[] = stops ? [] : [{ name: deadTopic, retentionSeconds: 0, schema: undefined }]
  return {
    topics,
    subscriptions,
    grants: [...mover, ...readers],
  }
}

function hasDeadLetters({ deadLetter }: SubscriptionSettings): boolean {
  return deadLetter !== undefined
}

function checkPoison({ name, onPoison = 'dead-letter' }: ProvisionedConsumer): void {
  if (onPoison === 'dead-letter' || onPoison === 'stop') return
  throw new WaybillError(
    'INVALID_OPTION',
    `provision.consumers: onPoison of ${name} must be 'dead-letter' or 'stop', got ${JSON.stringify(onPoison)}.`,
  )
}

function checkRanges(options: ProvisionOptions): void {
  const ranges = [
    ['retentionSeconds', options.retentionSeconds, 600, 2_678_400],
    ['topicRetentionSeconds', options.topicRetentionSeconds === 0 ? undefined : options.topicRetentionSeconds, 600, 2_678_400],
    ['deadLetterRetentionSeconds', options.deadLetterRetentionSeconds, 600, 2_678_400],
    ['ackDeadlineSeconds', options.ackDeadlineSeconds, 10, 600],
    ['maxAttempts', options.maxAttempts, 5, 100],
    ['retry.minSeconds', options.retry?.minSeconds, 0, 600],
    ['retry.maxSeconds', options.retry?.maxSeconds, 0, 600],
  ] as const
  for (const [name, value, min, max] of ranges) {
    if (value !== undefined && isProvisional({ retentionSeconds: value })) throw ambiguous(name, value)
    if (value === undefined || (Number.isSafeInteger(value) && value >= min && value <= max)) continue
    throw new WaybillError(
      'INVALID_OPTION',
      `provision.${name}: Pub/Sub takes a whole number from ${min} to ${max}, got ${value}.`,
    )
  }
}

function unique<Value>(values: readonly Value[]): Value[] {
  return [...new Set(values)]
}

function ambiguous(name: string, value: number): WaybillError {
  return new WaybillError(
    'INVALID_OPTION',
    `provision.${name}: ${value} marks what provisioning has not finished. Take a second more, or less.`,
  )
}

/** A second less than Pub/Sub keeps anything: it tells what is not finished from what others have set, and lasts until somebody looks. */
const provisionalSeconds = 31 * 86_400 - 1

interface Retaining {
  readonly retentionSeconds: number
}

export function provisional<Settings extends Retaining>(settings: Settings): Settings {
  return { ...settings, retentionSeconds: provisionalSeconds }
}

export function isProvisional({ retentionSeconds }: Retaining): boolean {
  return retentionSeconds === provisionalSeconds
}
