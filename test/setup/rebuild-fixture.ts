/**
 * What tests of rebuilds begin with: an owner that writes, a relay, a live consumer, and a clock for its stalls.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { onTestFinished } from 'vitest'
import type { Consumer } from '../../src/consumer/consumer.ts'
import { createConsumer } from '../../src/consumer/consumer.ts'
import { systemClock, type Clock } from '../../src/core/service/clock.ts'
import type { SignalName, Signals } from '../../src/core/signals.ts'
import { createTokens } from '../../src/core/event/token.ts'
import { rebuild, type RebuildOptions } from '../../src/ops/rebuild/rebuild.ts'
import { createRelay } from '../../src/outbox/relay/relay.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { memory } from '../../src/transport/memory/memory.ts'
import { postgresTransport } from '../../src/transport/postgres/postgres-transport.ts'
import type { Transport } from '../../src/transport/port/transport.ts'
import { consumerFixture, mails, videos as anyVideos, type ConsumerFixture } from './consumer-fixture.ts'

/** An owner that writes, a relay, and a live consumer with a projection and a handler that emits. */
export interface RebuildWorld extends ConsumerFixture {
  readonly transport: Transport
  readonly catalog: Consumer
  write(id: string): Promise<string>
  remove(id: string): Promise<string>
  /** Writes without a pause until the returned function is called; returns how much. */
  writing(ids: readonly string[]): () => Promise<number>
  /** Resolves when the live consumer has applied everything. */
  settle(): Promise<void>
  /** `onSet` is called for each row that is about to be written. */
  rebuild(options: Partial<RebuildOptions>, onSet?: () => void): ReturnType<typeof rebuild>
  /** How often a rebuild has called the handler. */
  handledAgain(): number
  /** The aggregates as the owner's last events have them, and as a table shows them. */
  owner(): Promise<readonly unknown[]>
  shown(table?: string): Promise<readonly unknown[]>
  end(): Promise<void>
}

/** A broker that the test has made ready: the topic of the videos is there. */
export interface RebuildBroker {
  readonly transport: Transport
  readonly videos: typeof anyVideos
}

export async function rebuildWorld(db: Database, kind: 'memory' | 'postgres' | RebuildBroker = 'memory'): Promise<RebuildWorld> {
  const fixture = await consumerFixture(db, memory())
  const { schema, outbox, query, count } = fixture
  const { transport, videos } = brokerOf(kind, fixture)
  const consumerOf = (onSet: () => void = () => undefined, onHandled: () => void = () => undefined): Consumer =>
    createConsumer({
      db,
      transport,
      name: 'catalog',
      streams: [videos],
      outbox,
      schema,
      lingerMs: 1,
      batchSize: 50,
      maxInFlight: 200,
      pollMs: 5,
      tokens: createTokens(),
    })
      .project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (e) => (onSet(), { title: e.data.title }) })
      .on(videos.VideoPublished, (event, { emit }) => {
        onHandled()
        emit(mails.MailRequested, event.id, { to: event.aggregateId })
      })
  const catalog = consumerOf()
  const stop = new AbortController()
  const life = { stopping: stop.signal, aborting: new AbortController().signal }
  const relay = createRelay({ db, outbox, transport, idleMs: 5, busyMs: 1 })
  const running = Promise.all([catalog.run(life), relay.run(life)])
  running.catch(() => undefined)
  let titles = 0
  let handledAgain = 0
  const write = async (id: string): Promise<string> =>
    (await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, id, { title: `title ${(titles += 1)}` }))).token
  const videoEvents = (): Promise<number> => count('outbox', "aggregate_type = 'video'")
  return {
    ...fixture,
    transport,
    catalog,
    write,
    remove: async (id) => (await transaction(db, (tx) => outbox.add(tx, videos.VideoRemoved, id))).token,
    writing: (ids) => {
      let on = true
      const loop = async (): Promise<number> => {
        let written = 0
        while (on) {
          await write(ids[written % ids.length] ?? '')
          written += 1
        }
        return written
      }
      const done = loop()
      return () => ((on = false), done)
    },
    settle: async () => {
      await eventually(async () => (await count('inbox', 'generation = 1')) === (await videoEvents()))
    },
    rebuild: (options, onSet) =>
      rebuild({
        consumer: consumerOf(onSet, () => void (handledAgain += 1)),
        transport,
        actor: 'test',
        pollMs: 20,
        stallMs: 60_000,
        swapWaitMs: 10_000,
        ...options,
      }),
    handledAgain: () => handledAgain,
    owner: () =>
      query(`select distinct on (aggregate_id) aggregate_id as id, version::text,
                    case event_type when 'VideoPublished' then convert_from(payload, 'UTF8')::jsonb->>'title' end as title
               from $schema.outbox o where aggregate_type = 'video' order by o.aggregate_id, o.version desc`),
    shown: (table = 'video_view') =>
      query(
        `select video_id as id, version::text, case when deleted_at is null then title end as title from $schema.${table} order by 1`,
      ),
    end: async () => {
      stop.abort()
      await running
      await transport.close()
    },
  }
}

function brokerOf(kind: 'memory' | 'postgres' | RebuildBroker, { db, schema, broker }: ConsumerFixture): RebuildBroker {
  if (typeof kind === 'object') return kind
  return { transport: kind === 'memory' ? broker : postgresTransport({ db, schema }), videos: anyVideos }
}

/** A clock that shows another time only when it is told to. Its sleeps are real. */
export function standingClock(): Clock & { advance(ms: number): void } {
  let nowMs = 0
  return { ...systemClock, monotonicMs: () => nowMs, advance: (ms) => void (nowMs += ms) }
}

/** Calls `listener` for the signals of that name until the test is over, whosever they are: an engine of a rebuild has its own. */
export function hear<Name extends SignalName>(name: Name, listener: (event: Signals[Name]) => void): void {
  const heard = (event: unknown): void => listener(event as Signals[Name])
  subscribe(`waybill:${name}`, heard)
  onTestFinished(() => void unsubscribe(`waybill:${name}`, heard))
}
