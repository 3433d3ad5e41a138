/**
 * Where the events of a rebuild come from. To the consumer's engine both look like a transport.
 *
 *   broker   a subscription of its own, `<consumer>.g<generation>`, moved back to a time, a snapshot or the beginning
 *   outbox   the owner's retained events: once through all that were published, then the rest that the new generation lacks
 *
 * An event in the outbox may wait for its date, for its stream to go on, or for an operator: no consumer is to see it yet. So that
 * feed takes what no relay has in hand, and what the live generation has applied, also if no relay knows of that.
 *
 * Both go on until they are stopped, so that the new generation follows the live one until the swap.
 *
 * An operator says where reading begins. A time is one moment, whatever the zone of the machine that it is typed on, and is said back in
 * UTC. The subscription gets there by a seek to a moment or the beginning, as every broker can, or to a snapshot, where there is such a
 * thing.
 */
import type { Clock } from '../../core/service/clock.ts'
import { toMessage as toOutgoing } from '../../outbox/relay/message.ts'
import type { OutboxTables } from '../../outbox/tables/outbox.sql.ts'
import { rows, type Queryable } from '../../postgres/query/database.ts'
import type {
  IncomingMessage,
  Receiver,
  ReceiveOptions,
  Transport,
  SeekTarget,
  SnapshotTarget,
} from '../../transport/port/transport.ts'
import { readBehind, readRetained, type ReplayCursor, type ReplayRow } from './replay.sql.ts'
import { findBehind, type RebuildScope } from './rebuild.sql.ts'
import { WaybillError, isWaybillError } from '../../core/errors.ts'

export interface RebuildFeed extends Pick<Transport, 'receive'> {
  /** Feeds until `stopping`; rejects if it cannot go on. */
  run(stopping: AbortSignal): Promise<void>
  /** Everything that was there when it began has been handed out and applied. */
  isThrough(): boolean
}

/** The broker's retained messages, over a subscription that was moved back before. */
export function brokerFeed(options: {
  readonly transport: Pick<Transport, 'receive'>
  readonly subscription: string
  readonly isCaughtUp: () => boolean
}): RebuildFeed {
  const { transport, subscription, isCaughtUp } = options
  return {
    receive: (receive) => transport.receive({ ...receive, consumer: subscription }),
    run: () => Promise.resolve(),
    isThrough: isCaughtUp,
  }
}

export interface OutboxFeedOptions {
  /** The owner's database and outbox. */
  readonly owner: Queryable
  readonly outbox: Pick<OutboxTables, 'outbox' | 'dispatch' | 'schema'>
  /** The consumer's database, which knows what the new generation is behind with. */
  readonly db: Queryable
  readonly scope: RebuildScope
  /** The topics that the streams have now, by aggregate type: an event may have been written when it was another. */
  readonly topics: ReadonlyMap<string, string>
  readonly after: ReplayCursor | 'through' | undefined
  readonly onProgress: (after: ReplayCursor | 'through') => Promise<void>
  readonly pageSize: number
  readonly pollMs: number
  readonly clock: Clock
}

/** The owner's retained events. */
export function outboxFeed(options: OutboxFeedOptions): RebuildFeed {
  const { owner, outbox, scope, topics, pageSize, pollMs, clock } = options
  const hands = new Hands(clock)
  let through = options.after === 'through'
  const toMessages = (page: readonly ReplayRow[]): readonly IncomingMessage[] =>
    page.map((row) => toMessage({ ...row, topic: topics.get(row.aggregate_type) ?? row.topic }))

  const readAll = async (stopping: AbortSignal): Promise<void> => {
    let after: ReplayCursor = options.after === undefined || options.after === 'through' ? beginning : options.after
    while (!stopping.aborted) {
      const page = await rows(owner, readRetained(outbox, scope.types, { after, limit: pageSize }))
      await hands.deliver(toMessages(page.filter(({ published }) => published)), stopping)
      const last = page.at(-1)
      if (stopping.aborted) return
      if (last !== undefined) after = { type: last.aggregate_type, id: last.aggregate_id, version: last.version }
      if (page.length === pageSize) await options.onProgress(after)
      else {
        await options.onProgress('through')
        through = true
        return
      }
    }
  }
  /**
   * Round after round through what is behind, so that what cannot be had does not keep the rest waiting. Nor does what stays behind
   * although it was handed over, as the events of an aggregate that is held: a page that comes twice is passed over.
   */
  const follow = async (stopping: AbortSignal): Promise<void> => {
    let after = { type: '', id: '' }
    let lastEvent: string | undefined
    while (!stopping.aborted) {
      const behind = await rows(options.db, findBehind(scope, after, pageSize))
      const found = behind.length === 0 ? [] : await rows(owner, readBehind(outbox, behind, pageSize))
      await hands.deliver(toMessages(found), stopping)
      const isWhole = found.length < pageSize
      const isStuck = !isWhole && found.at(-1)?.event_id === lastEvent
      lastEvent = found.at(-1)?.event_id
      const last = isStuck ? found.at(-1) : behind.at(-1)
      if (isWhole || isStuck)
        after = last === undefined ? { type: '', id: '' } : { type: last.aggregate_type, id: last.aggregate_id }
      if (last === undefined || found.length === 0 || isStuck) await clock.sleep(pollMs, stopping)
    }
  }
  return {
    receive: (receive) => Promise.resolve(hands.receive(receive)),
    run: async (stopping) => {
      if (!through) await readAll(stopping)
      await follow(stopping)
    },
    isThrough: () => through,
  }
}

const beginning: ReplayCursor = { type: '', id: '', version: '0' }
const never = new AbortController().signal
const unheardMs = 20

/** Hands messages to the engine's receivers and waits until each is settled; a refused one is handed over again. */
class Hands {
  readonly #clock: Clock
  readonly #receivers = new Map<string, ReceiveOptions['onDelivery']>()
  readonly #inHand = new Set<Promise<void>>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  receive({ topic, onDelivery }: ReceiveOptions): Receiver {
    this.#receivers.set(topic, onDelivery)
    return {
      close: async () => {
        this.#receivers.delete(topic)
        await Promise.all(this.#inHand)
      },
    }
  }

  /** Resolves when all are acknowledged, or when it is stopped. */
  async deliver(messages: readonly IncomingMessage[], stopping: AbortSignal): Promise<void> {
    await Promise.all(messages.map((message) => this.#handUntilAcked(message, stopping)))
  }

  async #handUntilAcked(message: IncomingMessage, stopping: AbortSignal): Promise<void> {
    for (let attempt = 1; !stopping.aborted; attempt += 1) {
      const onDelivery = this.#receivers.get(message.topic)
      // Nobody receives this topic now, as when the consumer is paused.
      const delayMs =
        onDelivery === undefined ? unheardMs : await this.#hand(onDelivery, { ...message, deliveryAttempt: attempt })
      if (delayMs === 'acked') return
      await this.#clock.sleep(delayMs, stopping)
    }
  }

  /** How it was settled: acknowledged, or to be handed over again after so long. */
  async #hand(onDelivery: ReceiveOptions['onDelivery'], message: IncomingMessage): Promise<'acked' | number> {
    const settled = Promise.withResolvers<'acked' | number>()
    const inHand = settled.promise.then(() => void this.#inHand.delete(inHand))
    this.#inHand.add(inHand)
    onDelivery({
      message,
      lost: never,
      ack: () => {
        settled.resolve('acked')
        return Promise.resolve('confirmed')
      },
      nack: (delayMs = 0) => Promise.resolve(settled.resolve(delayMs)),
    })
    return await settled.promise
  }
}

/** The message that a relay would have sent. */
function toMessage(row: ReplayRow): IncomingMessage {
  const message = toOutgoing({ ...undispatched, ...row }, 'aggregate')
  return { ...message, messageId: row.event_id, publishedAtMs: Number(row.occurred_at_ms), deliveryAttempt: 1 }
}

/** An event that waits for no relay. */
const undispatched = { lane: 0, seq: '0', key: '0', state: 0, publish_attempts: 0, blocked: false, wait_ms: 0 }

/** A date, which begins in UTC, or a date and a time with their zone. */
const moment = /^(\d{4}-\d{2}-\d{2})(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2}))?$/

const snapshotName = /^snapshot:(\S+)$/

/** Reads `earliest`, `outbox`, a time or `snapshot:` with a name. */
export function parseFrom(text: string): 'outbox' | SeekTarget | SnapshotTarget {
  if (text === 'outbox' || text === 'earliest') return text
  const [, snapshot] = snapshotName.exec(text) ?? []
  if (snapshot !== undefined) return { snapshot }
  const sinceMs = momentMs(text)
  if (sinceMs !== undefined) return { sinceMs }
  throw new WaybillError(
    'INVALID_OPTION',
    `from: must be earliest, outbox, snapshot:<name>, a date such as 2026-05-01 (UTC), or a time with its zone such as 2026-05-01T14:00:00Z or 2026-05-01T16:00:00+02:00, got ${JSON.stringify(text)}.`,
  )
}

/** The same in words that `parseFrom` takes. */
export function showFrom(from: ReturnType<typeof parseFrom>): string {
  if (typeof from === 'string') return from
  return 'snapshot' in from ? `snapshot:${from.snapshot}` : new Date(from.sinceMs).toISOString()
}

function momentMs(text: string): number | undefined {
  const [, date = ''] = moment.exec(text) ?? []
  const ms = Date.parse(text)
  if (date === '' || Number.isNaN(ms)) return undefined
  // To `Date` the 30th of February is the 2nd of March.
  return new Date(date).toISOString().startsWith(date) ? ms : undefined
}

/** Moves a subscription to each of these topics. REFUSED, before anything is moved, if nothing can be moved there. */
export function seekerOf(
  transport: Pick<Transport, 'seek' | 'seekToSnapshot'>,
  from: SeekTarget | SnapshotTarget,
  topics: readonly string[],
): (consumer: string) => Promise<void> {
  if (from === 'earliest' || 'sinceMs' in from) {
    return async (consumer) => {
      for (const topic of topics) await transport.seek({ topic, consumer, to: from }).catch(missing(topic, consumer))
    }
  }
  const { snapshot } = from
  const seekToSnapshot = transport.seekToSnapshot?.bind(transport)
  if (seekToSnapshot === undefined) throw refused(snapshot, 'this broker has no snapshots')
  const [topic = '', ...others] = topics
  if (others.length > 0) throw refused(snapshot, `it is of one topic, and the projections are of ${topics.join(', ')}`)
  return (consumer) => seekToSnapshot({ topic, consumer, snapshot }).catch(missing(topic, consumer, snapshot))
}

/** Provisioning makes neither. */
function missing(topic: string, consumer: string, snapshot?: string): (error: unknown) => never {
  const what = snapshot === undefined ? 'it' : `it, or snapshot ${snapshot} of the topic,`
  return (error) => {
    if (!isWaybillError(error, 'NOT_FOUND')) throw error
    const sentence = `A rebuild reads ${topic} over a subscription of its own, as ${consumer}: ${what} is not there. Make it first, as docs/guides/rebuild.md says, and run the same again.`
    throw new WaybillError('NOT_FOUND', sentence, { cause: error })
  }
}

function refused(snapshot: string, why: string): WaybillError {
  return new WaybillError(
    'REFUSED',
    `Nothing can be rebuilt from snapshot ${snapshot}: ${why}. Rebuild from earliest, a time or outbox.`,
  )
}
