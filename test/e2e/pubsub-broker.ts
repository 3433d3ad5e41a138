/** A Pub/Sub server whose time runs fast unless told otherwise, with a topic and a subscription, and a transport that lives as fast. */
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { systemClock, type Clock } from '../../src/core/service/clock.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createPubsubAdmin } from '../../src/transport/pubsub/admin/admin.ts'
import { pubsub, type PubsubOptions } from '../../src/transport/pubsub/pubsub.ts'
import type { OutgoingMessage, Transport } from '../../src/transport/port/transport.ts'
import { fastClock } from './fast-clock.ts'

export interface FastBroker {
  readonly server: PubsubServer
  readonly transport: Transport
  readonly clock: Clock
  readonly close: () => Promise<void>
}

export interface BrokerOptions {
  readonly isExactlyOnce?: boolean
  readonly transport?: Partial<PubsubOptions>
  /** @default one that is twenty times as fast: leases end within a second, also when the machine stalls for that long */
  readonly clock?: Clock
}

/** For tests in which no lease may end. */
export const unhurried = { clock: systemClock, transport: { leaseMs: 60_000 } } satisfies BrokerOptions

export async function openBroker(options: BrokerOptions = {}): Promise<FastBroker> {
  const clock = options.clock ?? fastClock(20)
  const server = await startPubsubServer({ clock, seed: 7 })
  const admin = createPubsubAdmin({ projectId: 'faults', emulatorHost: server.emulatorHost })
  await admin.createTopic({ name: 'video.events', retentionSeconds: 0, schema: undefined })
  await admin.createSubscription({
    name: 'video.events.catalog',
    topic: 'video.events',
    ackDeadlineSeconds: 15,
    retentionSeconds: 86_400,
    isRetainingAcked: false,
    isOrdered: true,
    isExactlyOnce: options.isExactlyOnce ?? false,
    filter: undefined,
    retry: undefined,
    deadLetter: undefined,
    expiresAfterSeconds: 0,
  })
  const transport = pubsub({
    projectId: 'faults',
    emulatorHost: server.emulatorHost,
    clock,
    exactlyOnce: options.isExactlyOnce ?? false,
    ...options.transport,
  })
  const close = async (): Promise<void> => {
    await transport.close()
    await admin.close()
    await server.stop()
  }
  return { server, transport, clock, close }
}

export const message = (key: string, n: number): OutgoingMessage => ({
  topic: 'video.events',
  orderingKey: key,
  attributes: { name: `${key}:${n}` },
  body: Buffer.from(String(n)),
})

/** Publishes as a relay does: each key in order, from the first that is not confirmed, until all are. */
export async function publishAll(transport: Transport, messages: readonly OutgoingMessage[]): Promise<void> {
  let left = messages
  await eventually(async () => {
    const outcomes = await transport.publish(left, { signal: AbortSignal.timeout(30_000), maySend: () => true })
    left = left.filter((_, index) => outcomes[index]?.status !== 'confirmed')
    return left.length === 0
  })
}
