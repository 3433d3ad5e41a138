/**
 * A broker in this process, for unit tests and examples, and as the no-op broker of benches.
 *
 * It keeps the transport's whole contract: order per key, competing receivers, bounds, redelivery, seek. It shows what it
 * did: `published` in the broker's order, and `deliveries`. Time and chance are passed in. With `nasty` it also does what
 * real brokers do on bad days (see faults.ts); `setOutage` takes it down, `setMissing` some topics.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { atLeast, resolve, wholeBetween } from '../../core/options.ts'
import { seededRandom, type Random } from '../../core/service/random.ts'
import { MemoryBroker, type HandedMessage } from './broker.ts'
import { MemoryPublishing, unavailable, type Outage } from './publish.ts'
import { createDice, type Nastiness } from './faults.ts'
import { publishRuns } from '../port/publish-runs.ts'
import type { IncomingMessage, OutgoingMessage, Transport } from '../port/transport.ts'

export interface MemoryOptions {
  /** The largest message. @default 10_000_000 */
  readonly maxBytes?: number
  /** How long the broker takes to confirm a request. @default 0 */
  readonly latencyMs?: number
  /** The messages it refuses, besides those that are too large. @default none */
  readonly rejects?: (message: OutgoingMessage) => boolean
  /** What goes wrong: nothing, a bad day (`true`), or chances of one's own. @default false */
  readonly nasty?: boolean | Partial<Nastiness>
  /** A request that lands late does so within this time. @default 20 */
  readonly lateMs?: number
  /** Whether messages are kept after delivery, for `published`, new consumers and seek. Benches say no. @default true */
  readonly retain?: boolean
  readonly clock?: Clock
  /** @default seeded with 1 */
  readonly random?: Random
}

export interface MemoryTransport extends Transport {
  /** Everything that landed, in the broker's order, duplicates included. */
  readonly published: readonly Omit<IncomingMessage, 'deliveryAttempt'>[]
  /** How many landed, retained or not. */
  readonly publishedCount: number
  /** Everything that was handed out, in order. */
  readonly deliveries: readonly HandedMessage[]
  /** How often each nastiness has struck. */
  readonly struck: Readonly<Record<keyof Nastiness, number>>
  setOutage(outage: Outage): void
  /** Topics that nobody can publish to from now on, as if they had not been created. */
  setMissing(topics: readonly string[]): void
  setRejects(rejects: (message: OutgoingMessage) => boolean): void
  /** Resolves when no late landing is on its way any more. */
  quiet(): Promise<void>
}

/** Makes a broker that lives as long as this object. */
export function memory(options: MemoryOptions = {}): MemoryTransport {
  const { nasty, random, clock, retain, maxBytes, latencyMs, ...rest } = resolveMemoryOptions(options)
  const dice = createDice(nasty, random)
  const broker = new MemoryBroker({ clock, dice, retain })
  const publishing = new MemoryPublishing({ broker, dice, clock, maxBytes, latencyMs, ...rest })
  const plain = nasty === false && latencyMs === 0
  let closed = false

  return {
    name: 'memory',
    maxBytes,
    published: broker.published,
    deliveries: broker.deliveries,
    struck: dice.struck,
    get publishedCount() {
      return broker.count
    },
    setOutage: (outage) => void (publishing.outage = outage),
    setMissing: (topics) => void (publishing.missing = new Set(topics)),
    setRejects: (rejects) => void (publishing.rejects = rejects),
    quiet: () => publishing.quiet(),
    publish: async (messages, publishOptions) => {
      if (closed) return messages.map(() => ({ status: 'unavailable', error: unavailable('the transport is closed') }))
      if (plain && publishing.outage === 'none' && publishing.missing.size === 0)
        return publishing.publishAtOnce(messages, publishOptions)
      return await publishRuns(publishing, messages, publishOptions)
    },
    receive: (receiveOptions) => {
      if (closed) return Promise.reject(unavailable('the transport is closed'))
      return Promise.resolve(broker.subscription(receiveOptions.topic, receiveOptions.consumer).receive(receiveOptions))
    },
    seek: ({ topic, consumer, to }) => Promise.resolve(broker.seek(topic, consumer, to)),
    rewind: ({ topic, consumer, sinceMs }) => Promise.resolve(broker.rewind(topic, consumer, sinceMs)),
    close: () => {
      closed = true
      return Promise.resolve(broker.close())
    },
  }
}

function resolveMemoryOptions(options: MemoryOptions): Required<MemoryOptions> {
  return resolve<Required<MemoryOptions>>(
    'memory',
    {
      maxBytes: 10_000_000,
      latencyMs: 0,
      rejects: () => false,
      nasty: false,
      lateMs: 20,
      retain: true,
      clock: systemClock,
      random: seededRandom(1),
    },
    options,
    { maxBytes: wholeBetween(1, Number.MAX_SAFE_INTEGER), latencyMs: atLeast(0), lateMs: atLeast(0) },
  )
}
