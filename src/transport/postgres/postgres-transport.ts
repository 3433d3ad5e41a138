/**
 * Topics and subscriptions in Postgres itself, so that a team without a broker starts today and moves to another transport
 * by changing one line.
 *
 * Delivery is at least once, in order per key, shared between the receivers of a consumer. It needs READ COMMITTED, works
 * through poolers in transaction mode, and keeps no session state. A message is retained for `retentionMs`, and longer
 * while a subscription has not settled it.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { isWaybillError, WaybillError } from '../../core/errors.ts'
import { createWaker } from '../../core/service/loop.ts'
import { atLeast, resolve, wholeBetween } from '../../core/options.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import { unlessLate } from '../../core/service/abort.ts'
import { execute, one, type Queryable } from '../../postgres/query/database.ts'
import { withDeadlines } from '../../postgres/transaction/deadline.ts'
import type { Statement } from '../../postgres/query/sql.ts'
import { isRetryableState, sqlState } from '../../postgres/query/sql-state.ts'
import { steadyStatements } from '../../postgres/transaction/steady-statements.ts'
import type { PublishOutcome, SeekTarget, Transport } from '../port/transport.ts'
import { publishToPostgres } from './publish.ts'
import { answerMs, PostgresReceiver } from './receiver.ts'
import { createSweeper } from './retention.ts'
import { rewindSubscription, seekSubscription, subscribe, transportTables } from './transport.sql.ts'

export interface PostgresTransportOptions {
  readonly db: Queryable
  /** @default 'waybill' */
  readonly schema?: string
  /** The largest message. @default 10_000_000 */
  readonly maxBytes?: number
  /** How long settled messages are kept, for new consumers, seek and rewind. @default 7 days */
  readonly retentionMs?: number
  /** A receiver that died holds its lanes this long. @default 5_000 */
  readonly leaseMs?: number
  /** Parts that a new subscription is shared by, at most one receiver each; a power of two. @default 32 */
  readonly lanes?: number
  /** The wait after the first poll that found nothing; it doubles. @default 5 */
  readonly busyMs?: number
  /** The longest wait between two polls. @default 50 */
  readonly idleMs?: number
  /** How often `transport.lag` is reported. @default 10_000 */
  readonly lagMs?: number
  readonly signals?: SignalBus
  readonly clock?: Clock
}

export interface PostgresTransport extends Transport {
  /** Makes a consumer's subscription before it first receives; it begins with everything that is retained. */
  subscribe(topic: string, consumer: string): Promise<void>
  /** Removes a consumer's subscription and everything that waits for it. */
  unsubscribe(topic: string, consumer: string): Promise<void>
  /** Deletes a batch of messages that are past their retention and settled by all; returns how many. */
  sweep(): Promise<number>
}

/** Connects nothing by itself: `db` is yours, and closing the transport leaves it open. */
export function postgresTransport(options: PostgresTransportOptions): PostgresTransport {
  const { schema, maxBytes, retentionMs, leaseMs, lanes, busyMs, idleMs, lagMs, signals, clock, ...given } =
    resolvePostgresOptions(options)
  const db = steadyStatements(given.db, 0)
  const tables = transportTables(schema)
  const waker = createWaker()
  const stopping = new AbortController()
  const receivers = new Set<PostgresReceiver>()
  const publishing = new Set<Promise<unknown>>()

  const find = async (topic: string, consumer: string, from: Queryable = db): Promise<number> =>
    (await one(from, subscribe(tables, { topic, consumer, lanes }))).id
  const sweeper = createSweeper({ db, tables, retentionMs, clock, signal: stopping.signal })
  const idle = (passes: number): number => Math.min(idleMs, busyMs * 2 ** Math.min(passes - 1, 20))

  return {
    name: 'postgres',
    maxBytes,
    publish: async (messages, publishOptions) => {
      if (stopping.signal.aborted) return messages.map((): PublishOutcome => ({ status: 'unavailable', error: closedError() }))
      const work = publishToPostgres({ db, tables, maxBytes }, messages, publishOptions)
      publishing.add(work)
      const outcomes = await work
      publishing.delete(work)
      waker.wake()
      return outcomes
    },
    receive: async (receiveOptions) => {
      if (stopping.signal.aborted) throw closedError()
      const { topic, consumer, onError } = receiveOptions
      const answered = withDeadlines(db, { statementMs: Math.max(answerMs, leaseMs), grows: true, clock })
      const opening = { onError, stopping: stopping.signal }
      const subscription = await untilAnswered(() => find(topic, consumer, answered), opening)
      const deps = { db, tables, subscription, leaseMs, idleMs: idle, waker, clock, lagMs, signals }
      const receiver = new PostgresReceiver({ ...deps, options: receiveOptions })
      await untilAnswered(() => receiver.start(), opening)
      receivers.add(receiver)
      const close = (aborting?: AbortSignal): Promise<void> => receiver.close(aborting).finally(() => receivers.delete(receiver))
      if (stopping.signal.aborted) await close(AbortSignal.abort())
      else sweeper.start(onError)
      return { close }
    },
    seek: async ({ topic, consumer, to }) => {
      await move(db, seekSubscription(tables, { topic, subscription: await find(topic, consumer), sinceMs: sinceOf(to) }))
      waker.wake()
    },
    rewind: async ({ topic, consumer, sinceMs }) => {
      await move(db, rewindSubscription(tables, { topic, subscription: await find(topic, consumer), sinceMs }))
      waker.wake()
    },
    subscribe: async (topic, consumer) => void (await find(topic, consumer)),
    unsubscribe: (topic, consumer) => sweeper.unsubscribe(topic, consumer),
    sweep: () => sweeper.sweep(),
    close: async () => {
      stopping.abort()
      await Promise.all([
        ...publishing,
        ...[...receivers].map((receiver) => receiver.close(AbortSignal.abort())),
        // A database that does not answer is not waited for, here as by the receivers.
        unlessLate(sweeper.ended(), leaseMs, clock),
      ])
    },
  }
}

interface Opening {
  readonly onError: (error: Error) => void
  readonly stopping: AbortSignal
}

/** Asks again what had no answer in time, which is told; whoever opens a receiver waits, but not in silence. What is refused rejects. */
async function untilAnswered<Result>(ask: () => Promise<Result>, { onError, stopping }: Opening): Promise<Result> {
  for (;;) {
    try {
      return await ask()
    } catch (error) {
      if (!isWaybillError(error, 'TIMEOUT')) throw error
      if (stopping.aborted) throw closedError()
      onError(error)
    }
  }
}

/** How often a subscription is moved in vain before that is told. */
const mostMoves = 5

/** A receiver that settles what this removes may be waited for and wait itself: the server ends one of the two, which tries again. */
async function move(db: Queryable, statement: Statement): Promise<void> {
  for (let attempts = 1; ; attempts += 1) {
    try {
      return void (await execute(db, statement))
    } catch (error) {
      if (attempts === mostMoves || !isRetryableState(sqlState(error))) throw error
    }
  }
}

function resolvePostgresOptions(options: PostgresTransportOptions): Required<PostgresTransportOptions> {
  const { db } = options
  if (typeof (db as Partial<Queryable> | undefined)?.query !== 'function') {
    throw new WaybillError(
      'INVALID_OPTION',
      'postgresTransport.db: pass a database from an adapter, such as fromPg(pool) or connect({ url }).',
    )
  }
  return resolve<Required<PostgresTransportOptions>>(
    'postgresTransport',
    {
      db,
      schema: defaults.schema,
      maxBytes: 10_000_000,
      retentionMs: 7 * 86_400_000,
      leaseMs: 5_000,
      lanes: 32,
      busyMs: 5,
      idleMs: 50,
      lagMs: 10_000,
      signals: defaultSignals,
      clock: systemClock,
    },
    options,
    {
      maxBytes: wholeBetween(1, 100_000_000),
      retentionMs: atLeast(0),
      leaseMs: wholeBetween(200, 600_000),
      lanes: (value) =>
        (value >= 1 && value <= 1_024 && Number.isInteger(Math.log2(value))) || 'must be a power of two from 1 to 1024',
      busyMs: atLeast(1),
      idleMs: atLeast(1),
      lagMs: atLeast(1),
    },
  )
}

function sinceOf(to: SeekTarget): number | undefined {
  return to === 'earliest' ? undefined : to.sinceMs
}

function closedError(): WaybillError {
  return new WaybillError('UNAVAILABLE', 'postgres: the transport is closed.')
}
