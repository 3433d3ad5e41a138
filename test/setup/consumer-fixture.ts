/**
 * A migrated schema with an outbox, an in-memory broker and consumers on it, and the questions that consumer tests ask.
 */
import { z } from 'zod'
import { createConsumer, type Consumer } from '../../src/consumer/consumer.ts'
import type { ConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import { delta, state, tombstone } from '../../src/core/event/event.ts'
import { newId } from '../../src/core/event/id.ts'
import { createSignals, type SignalBus, type SignalName, type Signals } from '../../src/core/signals.ts'
import { stream } from '../../src/core/event/stream.ts'
import { createOutbox, type Outbox } from '../../src/outbox/outbox.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { memory, type MemoryTransport } from '../../src/transport/memory/memory.ts'
import type { OutgoingMessage, Transport } from '../../src/transport/port/transport.ts'
import { nextSchema } from './ready-schemas.ts'

/** Whole states. */
export const videos = videosOn('video.events')
/** Changes, a snapshot that stands for all of them, and a type that nobody handles. */
export const accounts = stream('account', {
  topic: 'bank.events',
  events: {
    Deposited: delta(z.object({ amount: z.number() })),
    Renamed: delta(z.object({ name: z.string() })),
    BalanceSet: state(z.object({ balance: z.number() })),
  },
})
/** What handlers emit. */
export const mails = stream('mail', { topic: 'mail.events', events: { MailRequested: state(z.object({ to: z.string() })) } })

/** The same on another topic, where a broker is shared with other tests. */
export function videosOn(topic: string) {
  const events = { VideoPublished: state(z.object({ title: z.string() })), VideoRemoved: tombstone() }
  return stream('video', { topic, events })
}

export interface ConsumerFixture {
  readonly db: Database
  readonly schema: string
  readonly outbox: Outbox
  readonly broker: MemoryTransport
  readonly signals: SignalBus
  /** A consumer with short waits; it does nothing until it is started. */
  consumer(options?: Partial<ConsumerOptions>): Consumer
  /** Runs consumers until the returned function is called (or awaited at the end of the test). */
  start(...consumers: readonly Consumer[]): () => Promise<void>
  publish(...messages: readonly OutgoingMessage[]): Promise<void>
  query<Row>(text: string, values?: readonly (string | number)[]): Promise<readonly Row[]>
  /** How many of a table's rows there are. */
  count(table: string, where?: string): Promise<number>
  /** Everything of one name that was signalled so far. */
  heard<Name extends SignalName>(name: Name): readonly Signals[Name][]
  /** Resolves when the broker has nothing in hand or in line, twice in a row. */
  settled(expected: number): Promise<void>
}

export async function consumerFixture(db: Database, broker: MemoryTransport = memory()): Promise<ConsumerFixture> {
  const schema = nextSchema()
  await migrate(db, { schema, service: 'test' })
  await db.query(
    `create table ${schema}.video_view (video_id text primary key, title text, version bigint not null, deleted_at timestamptz)`,
  )
  await db.query(
    `create table ${schema}.effect (event_id uuid, aggregate_id text, version bigint, note text, at bigint generated always as identity)`,
  )
  await db.query(`create table ${schema}.balance (account_id text primary key, balance bigint not null)`)
  const outbox = createOutbox({ schema })
  const signals = createSignals()
  const said: { readonly name: SignalName; readonly event: unknown }[] = []
  signals.onAny((event, name) => void said.push({ name, event }))
  const query = async <Row>(text: string, values: readonly (string | number)[] = []): Promise<readonly Row[]> =>
    (await db.query(text.replaceAll('$schema', schema), values)).rows as readonly Row[]
  const count = async (table: string, where = 'true'): Promise<number> =>
    (await query<{ count: number }>(`select count(*)::int as count from $schema.${table} where ${where}`))[0]?.count ?? 0
  return {
    db,
    schema,
    outbox,
    broker,
    signals,
    consumer: (options) =>
      createConsumer({
        db,
        transport: broker,
        name: 'catalog',
        streams: [videos, accounts],
        outbox,
        schema,
        signals,
        lingerMs: 1,
        pollMs: 5,
        backoff: { firstMs: 1, maxMs: 2 },
        ...options,
      }),
    start: (...consumers) => {
      const stop = new AbortController()
      const running = Promise.all(
        consumers.map((each) => each.run({ stopping: stop.signal, aborting: new AbortController().signal })),
      )
      running.catch(() => undefined)
      return async () => {
        stop.abort()
        await running
      }
    },
    publish: async (...messages) => {
      const outcomes = await broker.publish(messages, { signal: new AbortController().signal, maySend: () => true })
      for (const { status } of outcomes) if (status !== 'confirmed') throw new Error(`The broker said ${status}.`)
    },
    query,
    count,
    heard: (name) => said.filter((each) => each.name === name).map(({ event }) => event) as never,
    settled: async (expected) => {
      await eventually(async () => (await count('inbox')) >= expected)
    },
  }
}

/** A broker, as if it did not count its deliveries. */
export function uncounted(broker: MemoryTransport): Pick<Transport, 'receive'> {
  return {
    receive: (options) =>
      broker.receive({
        ...options,
        onDelivery: (delivery) =>
          options.onDelivery({
            message: { ...delivery.message, deliveryAttempt: undefined },
            ack: () => delivery.ack(),
            nack: (delayMs) => delivery.nack(delayMs),
            lost: delivery.lost,
          }),
      }),
  }
}

/** A message as a relay would publish it. */
export function message(
  of: {
    readonly stream: typeof videos | typeof accounts | typeof mails
    readonly type: string
    readonly id: string
    readonly version: number
  },
  data: unknown,
  attributes: Readonly<Record<string, string>> = {},
): OutgoingMessage {
  return {
    topic: of.stream.topic,
    orderingKey: of.id,
    attributes: {
      event_id: newId(),
      event_type: of.type,
      aggregate_type: of.stream.aggregateType,
      aggregate_id: of.id,
      version: String(of.version),
      schema_version: '1',
      occurred_at: new Date().toISOString(),
      content_type: 'application/json',
      ...attributes,
    },
    body: Buffer.from(JSON.stringify(data)),
  }
}

export function published(
  id: string,
  version: number,
  title = `${id} ${version}`,
  attributes: Readonly<Record<string, string>> = {},
): OutgoingMessage {
  return message({ stream: videos, type: 'VideoPublished', id, version }, { title }, attributes)
}

export function removed(id: string, version: number): OutgoingMessage {
  return message({ stream: videos, type: 'VideoRemoved', id, version }, null)
}

export function deposited(
  id: string,
  version: number,
  amount: number,
  attributes: Readonly<Record<string, string>> = {},
): OutgoingMessage {
  return message({ stream: accounts, type: 'Deposited', id, version }, { amount }, attributes)
}
