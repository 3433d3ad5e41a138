/**
 * A process of the system under drill: a relay, a consumer, or a service that writes and relays. It is started by a drill, told
 * everything in its environment, and reports what it does to whoever started it.
 *
 * Failpoints stand where a crash hurts: before a publish, after one that the broker confirmed, and in a handler whose effect is not yet committed.
 */
import { pathToFileURL } from 'node:url'
import type { Consumer } from '../../consumer/consumer.ts'
import { run, type Service } from '../../core/service/lifetime.ts'
import { createSignals, type SignalBus, type SignalName } from '../../core/signals.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import { connect } from '../../postgres/connect.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { createMetrics } from '../../telemetry/metrics.ts'
import { startTelemetryServer } from '../../telemetry/telemetry-server.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFailpoints } from '../../testing/faults/failpoint.ts'
import { eventOf } from '../../testing/history/message-entries.ts'
import { kafka } from '../../transport/kafka/kafka.ts'
import { pubsub } from '../../transport/pubsub/pubsub.ts'
import type { Delivery, Publisher, Transport } from '../../transport/port/transport.ts'
import type { Database } from '../../postgres/query/database.ts'
import { createDrillConsumer, createWorld, deposit, type DrillWorld } from './system.ts'
import { toldSettings } from './told-settings.ts'

/** How a process reaches the broker. */
export type TransportPlace =
  | { readonly kind: 'pubsub'; readonly projectId: string; readonly emulatorHost: string }
  | { readonly kind: 'kafka'; readonly brokers: readonly string[] }
  /** By `transport` of the configuration in this file. */
  | { readonly kind: 'config'; readonly file: string }

export type ProcessRole = 'relay' | 'consumer' | 'service'

export interface ProcessSettings {
  readonly role: ProcessRole
  readonly url: string
  readonly schema: string
  readonly topic: string
  readonly transport: TransportPlace
  readonly relayLeaseMs: number
  /** Serve metrics for Prometheus. */
  readonly metrics: boolean
}

/** What a process says to the drill. */
export interface ProcessReport {
  readonly ready?: { readonly metricsUrl: string | undefined }
  readonly delivered?: { readonly event: string; readonly messageId: string; readonly partition: string | undefined }
  readonly signal?: { readonly name: SignalName; readonly event: Readonly<Record<string, unknown>> }
}

export interface ProcessOptions {
  /** Stands between the consumer and its deliveries, for variants that are meant to fail. @default nothing does */
  readonly alter?: (delivery: Delivery) => Delivery
}

const reported: readonly SignalName[] = [
  'lanes.acquired',
  'lanes.lost',
  'relay.breaker',
  'relay.published',
  'consumer.applied',
  'consumer.dead',
  'service.failed',
]

/** Runs until it is told to stop, or killed. */
export async function runDrillProcess({ alter = (delivery) => delivery }: ProcessOptions = {}): Promise<void> {
  const settings = toldSettings()
  const signals = createSignals()
  for (const name of reported) signals.on(name, (event) => report({ signal: { name, event } }))
  const metrics = createMetrics({ signals })
  const server = settings.metrics ? await startTelemetryServer({ metrics }) : undefined
  const db = connect({ url: settings.url, max: 6, applicationName: `drill ${settings.role}`, signals })
  const world = createWorld({ ...settings, db })
  const transport = await openTransport(settings.transport, world)
  const stop = new AbortController()
  process.once('message', () => stop.abort())
  report({ ready: { metricsUrl: server?.url } })
  // A first connection may take long on a busy machine, and a service that begins without one ends.
  await eventually(() => db.query('select 1'))
  if (settings.role === 'service') void writeOn(world, stop.signal)
  const service =
    settings.role === 'consumer'
      ? consumerOf(world, { transport, signals, alter })
      : relayOf(world, settings, { transport, signals })
  await run([service], { signal: stop.signal, signals })
  await transport.close()
  await db.close()
  await server?.close()
  process.exit()
}

/** The transport of a place. */
export async function openTransport(
  place: TransportPlace,
  { db, schema }: { readonly db: Database; readonly schema: string },
): Promise<Transport> {
  if (place.kind === 'pubsub') return pubsub({ projectId: place.projectId, emulatorHost: place.emulatorHost })
  if (place.kind === 'kafka')
    return kafka({
      brokers: place.brokers,
      minInsyncReplicas: 0,
      sessionTimeoutMs: 3_000,
      heartbeatMs: 300,
      rebalanceTimeoutMs: 6_000,
      drainTimeoutMs: 3_000,
    })
  const { default: config } = (await import(pathToFileURL(place.file).href)) as {
    readonly default: { readonly transport: (context: { db: Database; schema: string }) => Transport | Promise<Transport> }
  }
  return await config.transport({ db, schema })
}

interface ServiceParts {
  readonly transport: Transport
  readonly signals: SignalBus
}

function relayOf(
  { db, outbox, streams }: DrillWorld,
  { relayLeaseMs }: ProcessSettings,
  { transport, signals }: ServiceParts,
): Service {
  return createRelay({
    db,
    outbox,
    transport: brokenPublisher(transport),
    streams: [streams.accounts, streams.profiles],
    leaseMs: relayLeaseMs,
    renewMs: Math.floor(relayLeaseMs / 4),
    publishTimeoutMs: 3_000,
    backoff: { firstMs: 100, maxMs: 1_000 },
    signals,
  })
}

/** Breaks before a publish or after it; after one that was late and sent nothing, there would be nothing to break. */
function brokenPublisher(publisher: Publisher): Publisher {
  const failpoints = createFailpoints()
  return {
    maxBytes: publisher.maxBytes,
    publish: async (messages, options) => {
      await failpoints.hit('before publish')
      const outcomes = await publisher.publish(messages, options)
      if (outcomes.some(({ status }) => status === 'confirmed')) await failpoints.hit('after publish')
      return outcomes
    },
  }
}

function consumerOf(world: DrillWorld, { transport, signals, alter }: ServiceParts & Required<ProcessOptions>): Consumer {
  const failpoints = createFailpoints()
  const receive: Transport['receive'] = (options) =>
    transport.receive({
      ...options,
      onDelivery: (delivery) => {
        const { message } = delivery
        report({
          delivered: { event: eventOf(message).event, messageId: message.messageId, partition: message.position?.partition },
        })
        options.onDelivery(alter(delivery))
      },
    })
  return createDrillConsumer(world, { transport: { receive }, signals }, () => failpoints.hit('in handler'))
}

async function writeOn(world: DrillWorld, signal: AbortSignal): Promise<void> {
  for (let turn = 0; !signal.aborted; turn += 1)
    await transaction(world.db, (tx) => deposit(world, tx, { account: `account-${turn % 5}`, amount: 1 }))
}

/** A parent that is gone hears nothing more, and that is no reason to fail. */
function report(said: ProcessReport): void {
  process.send?.(said, undefined, {}, () => undefined)
}
