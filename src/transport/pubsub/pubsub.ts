/**
 * Google Pub/Sub as a transport, on Google's own client: publishing with one unacknowledged request per ordering key, and
 * receiving by StreamingPull with our own bounds, leases and drain.
 *
 * Topics and subscriptions must exist: `waybill provision` makes them. The subscription of a consumer is `<topic>.<consumer>`.
 * Order holds within a region, so with ordering keys name a regional `apiEndpoint`. It has no rewind: Pub/Sub does not tell what is
 * not acknowledged, and a seek acknowledges all that is older.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { oneOf, resolve, wholeBetween } from '../../core/options.ts'
import { systemRandom, type Random } from '../../core/service/random.ts'
import { publishRuns } from '../port/publish-runs.ts'
import { LazyConnection, type PubsubConnectOptions } from './client/connection.ts'
import { pubsubError } from './client/errors.ts'
import { usualLeaseMs } from './receive/lease-keeper.ts'
import { deadLetterName, snapshotPath, subscriptionName, subscriptionPath } from './client/names.ts'
import { pubsubLimits, pubsubSender } from './publish.ts'
import { PubsubReceiver } from './receive/receiver.ts'
import type { PublishOutcome, Transport } from '../port/transport.ts'

export interface PubsubOptions {
  readonly projectId: string
  /** A regional endpoint, `europe-west1-pubsub.googleapis.com`. @default Google's global one */
  readonly apiEndpoint?: string
  /** `host:port` of an emulator or of `waybill pubsub-server`: no TLS, no credentials. */
  readonly emulatorHost?: string
  /** Passed on to Google's client: `keyFilename`, `credentials`, `authClient`, `universeDomain` … @default {} */
  readonly clientOptions?: Readonly<Record<string, unknown>>
  /** How an event's attributes are written; both are read. @default 'plain' */
  readonly attributes?: 'plain' | 'cloudevents'
  /** The `source` of CloudEvents. @default '/waybill' */
  readonly cloudEventSource?: string
  /** The longest a publish may take before it counts as failed. @default 10_000 */
  readonly publishTimeoutMs?: number
  /** Publish requests under way at most, in one call of `publish`. @default 100 */
  readonly maxConcurrentRequests?: number
  /** Subscriptions have exactly-once delivery: acks are confirmed or reported as lost. @default false */
  readonly exactlyOnce?: boolean
  /**
   * How long a delivery is ours before it must be extended, 10 s to 10 min: that long the aggregates of a process that was killed
   * stand still. With `exactlyOnce` 60_000 unless set. @default 15_000
   */
  readonly leaseMs?: number
  /** How long a delivery may be unsettled before it is given up. @default 3_600_000 */
  readonly maxLeaseMs?: number
  /** A stream that gave no sign of life for this long is replaced. @default 60_000 */
  readonly silentMs?: number
  /**
   * The longest an acknowledgement, a lease extension or a seek may take before it is repeated. Opening the connection for it, or for
   * a receiver's stream, may take as long again. @default 10_000
   */
  readonly callTimeoutMs?: number
  /** @default the system's clock */
  readonly clock?: Clock
  /** @default the system's randomness */
  readonly random?: Random
}

/** A transport over Google Pub/Sub. It connects at the first use. */
export function pubsub(options: PubsubOptions): Transport {
  const settings = resolvePubsubOptions(options)
  const { projectId, callTimeoutMs } = settings
  const publisher = new LazyConnection('Publisher', settings)
  const admin = new LazyConnection('Subscriber', settings)
  const maxBytes = maxBytesOf(settings)
  const sender = pubsubSender(publisher, { ...settings, maxBytes })
  const receivers = new Set<PubsubReceiver>()
  const publishing = new Set<Promise<readonly PublishOutcome[]>>()
  const seek = async (name: string, target: object): Promise<void> => {
    const subscription = subscriptionPath(projectId, name)
    const call = admin.call('seek', { subscription, ...target }, { routing: { subscription }, timeoutMs: callTimeoutMs })
    await call.catch((error: unknown) => {
      throw pubsubError(error, `seek ${subscription}`)
    })
  }
  return {
    name: 'pubsub',
    maxBytes,
    publish: (messages, publishOptions) => {
      const call = publishRuns(sender, messages, publishOptions)
      publishing.add(call)
      return call.finally(() => publishing.delete(call))
    },
    receive: async (receiveOptions) => {
      const subscription = subscriptionPath(projectId, subscriptionName(receiveOptions.topic, receiveOptions.consumer))
      const receiver = new PubsubReceiver({ ...settings, ...receiveOptions, connect: settings, subscription })
      receivers.add(receiver)
      try {
        await receiver.open()
      } catch (error) {
        receivers.delete(receiver)
        throw error
      }
      return { close: (aborting) => receiver.close(aborting).finally(() => receivers.delete(receiver)) }
    },
    seek: async ({ topic, consumer, to }) => {
      const sinceMs = to === 'earliest' ? 0 : to.sinceMs
      const time = { seconds: Math.floor(sinceMs / 1000), nanos: Math.floor(sinceMs % 1000) * 1_000_000 }
      await seek(subscriptionName(topic, consumer), { time })
    },
    seekToSnapshot: async ({ topic, consumer, snapshot }) =>
      await seek(subscriptionName(topic, consumer), { snapshot: snapshotPath(projectId, snapshot) }),
    deadLetterTopic: deadLetterName,
    close: async () => {
      await Promise.all([...receivers].map((receiver) => receiver.close(AbortSignal.abort())))
      await Promise.allSettled(publishing)
      await Promise.all([publisher.close(), admin.close()])
    },
  }
}

type PubsubSettings = Required<Omit<PubsubOptions, 'apiEndpoint' | 'emulatorHost'>> & PubsubConnectOptions

function resolvePubsubOptions(given: PubsubOptions): PubsubSettings {
  const defaults: PubsubSettings = {
    projectId: '',
    apiEndpoint: undefined,
    emulatorHost: undefined,
    clientOptions: {},
    attributes: 'plain',
    cloudEventSource: '/waybill',
    publishTimeoutMs: 10_000,
    maxConcurrentRequests: 100,
    exactlyOnce: false,
    leaseMs: usualLeaseMs(given.exactlyOnce === true),
    maxLeaseMs: 3_600_000,
    silentMs: 60_000,
    callTimeoutMs: 10_000,
    clock: systemClock,
    random: systemRandom,
  }
  const settings = resolve<PubsubSettings>('pubsub', defaults, given, {
    attributes: oneOf('plain', 'cloudevents'),
    publishTimeoutMs: wholeBetween(1, 600_000),
    maxConcurrentRequests: wholeBetween(1, 10_000),
    exactlyOnce: oneOf(true, false),
    leaseMs: wholeBetween(10_000, 600_000),
    maxLeaseMs: wholeBetween(10_000, 86_400_000),
    silentMs: wholeBetween(100, 3_600_000),
    callTimeoutMs: wholeBetween(1, 600_000),
  })
  if (!/^[a-z0-9:.-]{1,128}$/.test(settings.projectId)) {
    throw new WaybillError(
      'INVALID_OPTION',
      `pubsub.projectId: must be the id of a Google Cloud project, got ${JSON.stringify(given.projectId)}.`,
    )
  }
  return settings
}

/** A CloudEvent has attributes that the event itself has not: its version, its source and longer names. */
function maxBytesOf({ attributes, cloudEventSource }: PubsubSettings): number {
  const overheadBytes = attributes === 'plain' ? 0 : 256 + Buffer.byteLength(cloudEventSource)
  return pubsubLimits.messageBytes - overheadBytes
}
