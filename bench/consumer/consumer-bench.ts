/**
 * What the consumer's contenders share: a durable Postgres, messages that are ready before the clock starts, and a broker
 * that hands them out within the consumer's bounds and takes acks at once. What is left is the database and our own work.
 *
 * Every sample brings new events, 300 bytes each, to the same 5,000 aggregates, so that every upsert finds a row.
 */
import { z } from 'zod'
import { createConsumer, type Consumer } from '../../src/consumer/consumer.ts'
import type { ConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import { state } from '../../src/core/event/event.ts'
import { newId } from '../../src/core/event/id.ts'
import { createSignals, type SignalBus } from '../../src/core/signals.ts'
import type { Signer } from '../../src/core/event/signing.ts'
import { stream } from '../../src/core/event/stream.ts'
import { connect, type Connection } from '../../src/postgres/connect.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { startPostgres } from '../../src/testing/servers/postgres.ts'
import type { Delivery, IncomingMessage, Transport } from '../../src/transport/port/transport.ts'

export const videos = stream('video', {
  topic: 'video.events',
  events: { VideoPublished: state(z.object({ title: z.string(), url: z.string(), views: z.number() })) },
})

export interface Fact {
  readonly id: string
  readonly aggregateId: string
  readonly version: number
  readonly data: { readonly title: string; readonly url: string; readonly views: number }
}

export interface ConsumerBench {
  readonly db: Connection
  readonly quick: boolean
  /** The next `count` facts: each aggregate's versions go on where they stopped. */
  readonly facts: (count: number) => readonly Fact[]
  close(): Promise<void>
}

const aggregates = 5_000

export async function openConsumerBench(quick: boolean): Promise<ConsumerBench> {
  const server = await startPostgres({
    durable: true,
    settings: { max_wal_size: '4GB', shared_buffers: '256MB', checkpoint_timeout: '30min' },
  })
  const db = connect({ url: server.url, max: 16 })
  await migrate(db, { schema: 'waybill', service: 'bench' })
  await db.query(
    'create table video (video_id text primary key, title text, url text, views int, version bigint not null, deleted_at timestamptz) with (fillfactor = 70)',
  )
  await db.query(
    'create table plain_inbox (consumer text, event_id uuid, processed_at timestamptz not null default clock_timestamp(), primary key (consumer, event_id))',
  )
  await db.query(
    'create table plain_video (video_id text primary key, title text, url text, views int, version bigint not null) with (fillfactor = 70)',
  )
  // An index is fastest at its right edge, and in one table only one of two consumers could be there.
  await db.query('create table copied_inbox (like waybill.inbox including all)')
  await db.query('create table seen (event_id uuid, title text)')
  let made = 0
  return {
    db,
    quick,
    facts: (count) =>
      Array.from({ length: count }, () => {
        const n = (made += 1)
        // A stride that is prime to the number of aggregates visits all of them, in no order.
        const aggregateId = `video-${(n * 1_787) % aggregates}`
        const data = { title: `title ${n}`, url: `https://example.com/${'x'.repeat(220)}`, views: n }
        return { id: newId(), aggregateId, version: Math.ceil(n / aggregates), data }
      }),
    close: async () => {
      await db.close()
      await server.stop()
    },
  }
}

/** As the broker hands it over. */
export function toMessage({ id, aggregateId, version, data }: Fact): IncomingMessage {
  return {
    messageId: id,
    topic: videos.topic,
    orderingKey: aggregateId,
    attributes: {
      event_id: id,
      event_type: 'VideoPublished',
      aggregate_type: 'video',
      aggregate_id: aggregateId,
      version: String(version),
      schema_version: '1',
      occurred_at: '2025-01-01T00:00:00.000000Z',
      content_type: 'application/json',
    },
    body: Buffer.from(JSON.stringify(data)),
    publishedAtMs: 0,
    deliveryAttempt: 1,
  }
}

export interface Consuming extends Partial<ConsumerOptions> {
  readonly count: number
  /** Signs the messages, before the clock starts. */
  readonly signer?: Signer | undefined
}

type Register = (consumer: Consumer<never>) => unknown

/**
 * Events per second of one consumer, from the broker's hand to the committed effect. The clock starts when the effects of
 * those that came first after the start are committed, and nothing else was handed out before that.
 */
export async function consume(context: ConsumerBench, options: Consuming, register: Register): Promise<number> {
  const { events, elapsedMs } = await measure(context, options, register)
  return (events / elapsedMs) * 1_000
}

/** Microseconds of this process's time on processors, per event, over the same stretch. */
export async function cpuPerEvent(context: ConsumerBench, options: Consuming, register: Register): Promise<number> {
  const { events, cpuMicros } = await measure(context, options, register)
  return cpuMicros / events
}

interface Measured {
  readonly events: number
  readonly elapsedMs: number
  readonly cpuMicros: number
}

async function measure(
  { db, facts, quick }: ConsumerBench,
  { count, signer, ...options }: Consuming,
  register: Register,
): Promise<Measured> {
  // Every batch that can be under way has its messages in hand.
  const maxInFlight = Math.max(100, (options.concurrency ?? 4) * (options.batchSize ?? 500))
  const events = quick ? Math.ceil(count / 5) : count
  const messages = facts(maxInFlight + events).map((fact) => arrived(signer?.sign(toMessage(fact)) ?? toMessage(fact)))
  const feed = feeding(messages, maxInFlight)
  const signals = createSignals()
  const common = { db, transport: feed, name: 'bench', streams: [videos], maxInFlight, signals }
  const consumer = createConsumer({ ...common, ...options })
  register(consumer as Consumer<never>)
  const timing = timed(signals, { warmUp: maxInFlight, total: messages.length, onWarm: feed.open })
  const stop = new AbortController()
  const running = consumer.run({ stopping: stop.signal, aborting: new AbortController().signal })
  const taken = await Promise.race([timing, feed.failed, running.then(() => ({ elapsedMs: Number.NaN, cpuMicros: Number.NaN }))])
  stop.abort()
  await running
  return { events, ...taken }
}

/** With attributes as one who parses them makes them, whoever made these. */
function arrived(message: IncomingMessage): IncomingMessage {
  return { ...message, attributes: JSON.parse(JSON.stringify(message.attributes)) as Record<string, string> }
}

/** What it took from the last of the warm-up's effects to the last of all. */
function timed(
  signals: SignalBus,
  { warmUp, total, onWarm }: { readonly warmUp: number; readonly total: number; readonly onWarm: () => void },
): Promise<Omit<Measured, 'events'>> {
  return new Promise((resolve) => {
    let [applied, startedAt] = [0, 0]
    let cpu = process.cpuUsage()
    signals.on('consumer.applied', ({ count }) => {
      const isWarm = applied >= warmUp
      applied += count
      if (!isWarm && applied >= warmUp) {
        cpu = process.cpuUsage()
        startedAt = performance.now()
        onWarm()
      }
      if (applied !== total) return
      const { user, system } = process.cpuUsage(cpu)
      resolve({ elapsedMs: performance.now() - startedAt, cpuMicros: user + system })
    })
  })
}

interface Feed extends Pick<Transport, 'receive'> {
  /** Hands out more than the first ones. */
  readonly open: () => void
  /** Rejects if a message is given back. */
  readonly failed: Promise<never>
}

function feeding(messages: readonly IncomingMessage[], first: number): Feed {
  const lost = new AbortController().signal
  const failed = Promise.withResolvers<never>()
  let [next, acked, limit, scheduled] = [0, 0, first, false]
  let give = (): void => undefined
  const schedule = (): void => {
    if (scheduled) return
    scheduled = true
    setImmediate(() => {
      scheduled = false
      give()
    })
  }
  const delivery = (message: IncomingMessage): Delivery => ({
    message,
    lost,
    ack: () => {
      acked += 1
      schedule()
      return Promise.resolve('confirmed')
    },
    nack: () => {
      failed.reject(new Error('The bench does not expect a failure.'))
      return Promise.resolve()
    },
  })
  return {
    failed: failed.promise,
    open: () => {
      limit = messages.length
      schedule()
    },
    receive: ({ maxMessages, onDelivery }) => {
      give = () => {
        while (next < limit && next - acked < maxMessages) onDelivery(delivery(messages[next++] as IncomingMessage))
      }
      schedule()
      return Promise.resolve({ close: () => Promise.resolve() })
    },
  }
}
