/**
 * A Pub/Sub server for the relay stress, with a subscriber that follows all that is published, and with bad days.
 *
 * Each fault of the server has a day of its own, with a day on which nothing goes wrong before and after it. A day lasts for its
 * share of the events, and until its fault has struck. Ack deadlines run faster than the clock on the wall, so that a forgotten
 * acknowledgement costs a moment.
 */
import { seededRandom } from '../../src/core/service/random.ts'
import { Faults, type FaultName } from '../../packages/pubsub-server/src/model/faults.ts'
import { listenGrpc } from '../../packages/pubsub-server/src/grpc-server.ts'
import { memoryJournal } from '../../packages/pubsub-server/src/model/journal.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { Log } from '../../src/testing/history/entry.ts'
import { logEntry } from '../../src/testing/history/message-entries.ts'
import { makePubsubTopic } from '../../src/drill/target/pubsub-topic.ts'
import { createPubsubAdmin } from '../../src/transport/pubsub/admin/admin.ts'
import { pubsub } from '../../src/transport/pubsub/pubsub.ts'
import type { Clock } from '../../src/core/service/clock.ts'
import { fastClock } from '../e2e/fast-clock.ts'
import type { BrokerServerOptions } from '../outbox/stress/broker-server.ts'
import type { StressBroker } from '../outbox/stress/stress.ts'
import { RecordingBroker } from './recording-broker.ts'

export type BadDay = readonly [fault: FaultName, probability: number]

export interface StressBrokerOptions extends BrokerServerOptions {
  readonly seed: number
  /** How many events the stress writes. */
  readonly events: number
  /** One after the other. */
  readonly badDays: readonly BadDay[]
}

export interface PubsubStressBroker extends StressBroker {
  /** What the subscriber was handed, in its order. It has had everything when the broker is closed. */
  readonly delivered: readonly Log[]
}

const topic = 'video.events'
const consumer = 'follower'

export async function startStressBroker({ seed, events, badDays, rejects }: StressBrokerOptions): Promise<PubsubStressBroker> {
  const landed: Log[] = []
  const different = new Set<string>()
  const faults = new Faults(seededRandom(`faults ${seed}`))
  const week = createWeek(faults, badDays, events)
  const clock = fastClock(10)
  const broker = new RecordingBroker({
    clock,
    faults,
    journal: memoryJournal,
    rejects: (attributes) => rejects({ isVoid: false, ...stored(attributes) }),
    onStored: (attributes) => {
      const entry = stored(attributes)
      landed.push(entry)
      different.add(entry.event)
      week.advance(different.size)
    },
  })
  const listener = await listenGrpc(broker, '127.0.0.1:0')
  const follower = await follow(`127.0.0.1:${listener.port}`, clock)
  return {
    protocol: 'pubsub',
    port: listener.port,
    landed,
    delivered: follower.delivered,
    get struck() {
      return Object.fromEntries(badDays.map(([fault]) => [fault, faults.fired[fault]]))
    },
    arrived: () => different.size,
    calm: () => week.end(),
    close: async () => {
      const name = `projects/stress/subscriptions/${topic}.${consumer}`
      // Everything handed over and acknowledged: nothing is on its way any more.
      await eventually(() => broker.subscription(name).queue.unackedMessages === 0, { timeoutMs: 300_000 })
      await follower.close()
      listener.close()
      broker.close()
    },
  }
}

function stored(attributes: ReadonlyMap<string, string>): Log {
  return logEntry({ topic, orderingKey: undefined, attributes: Object.fromEntries(attributes) })
}

interface Week {
  /** So many events have arrived. */
  advance(arrived: number): void
  /** No more bad days. */
  end(): void
}

/** Writers are up to a quarter of all events ahead when they have written theirs: by then the week should be over. */
const weekShare = 0.7

function createWeek(faults: Faults, badDays: readonly BadDay[], events: number): Week {
  const dayEvents = (events * weekShare) / (2 * badDays.length + 1)
  const faultOf = (day: number): BadDay | undefined => (day % 2 === 1 ? badDays[(day - 1) / 2] : undefined)
  let day = 0
  return {
    advance: (arrived) => {
      const [fault] = faultOf(day) ?? []
      if (arrived < dayEvents * (day + 1) || (fault !== undefined && faults.fired[fault] === 0)) return
      day += 1
      const [next, probability] = faultOf(day) ?? []
      faults.set(next === undefined ? {} : { [next]: probability })
    },
    end: () => {
      day = 2 * badDays.length
      faults.clear()
    },
  }
}

interface Follower {
  readonly delivered: readonly Log[]
  close(): Promise<void>
}

/** Makes the topic and an ordered subscription, and takes what comes. */
async function follow(emulatorHost: string, clock: Clock): Promise<Follower> {
  const admin = createPubsubAdmin({ projectId: 'stress', emulatorHost })
  await makePubsubTopic(admin, topic, [consumer])
  await admin.close()
  const delivered: Log[] = []
  const transport = pubsub({ projectId: 'stress', emulatorHost, clock })
  const receiver = await transport.receive({
    topic,
    consumer,
    maxMessages: 500,
    maxBytes: 10_000_000,
    onError: () => {},
    onDelivery: (delivery) => {
      delivered.push(logEntry(delivery.message))
      void delivery.ack()
    },
  })
  return {
    delivered,
    close: async () => {
      await receiver.close(AbortSignal.timeout(5_000))
      await transport.close()
    },
  }
}
