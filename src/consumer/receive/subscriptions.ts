/**
 * The receivers of a consumer, one a topic, opened and closed together: at its start and end, and around a pause.
 *
 * What may be in hand is shared evenly by the topics. Offsets that are kept in Postgres say where partitions are begun. Where the broker
 * keeps them and has lost them, the consumer says so.
 */
import { underSignals, unlessAborted } from '../../core/service/abort.ts'
import type { Delivery, Receiver, Transport } from '../../transport/port/transport.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { ConsumerObserver } from '../model/observer.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import { inPartitionOrder, type PartitionOrderOptions } from '../model/partition-order.ts'
import type { Routes } from '../model/routes.ts'
import { storedOffsets } from '../tables/offsets.ts'
import { othersOf, verified } from './verified.ts'
import { WaybillError } from '../../core/errors.ts'
import { first } from '../../postgres/query/database.ts'
import { selectForgotten } from '../tables/retention.sql.ts'

export interface SubscriptionsDeps {
  readonly settings: ConsumerSettings
  readonly routes: Pick<Routes, 'topics' | 'stream'>
  readonly scope: Scope
  readonly watch: ConsumerObserver
  readonly deliver: (delivery: Delivery) => void
  readonly fateOf: PartitionOrderOptions['fateOf']
  readonly isIdle: () => boolean
  readonly aborting: AbortSignal
}

export interface Subscriptions {
  isOpen(): boolean
  /** Resolves when deliveries can come, however long the broker takes, or when it is closed or stopped before. */
  open(stopping: AbortSignal): Promise<void>
  close(): Promise<void>
}

export function createSubscriptions(deps: SubscriptionsDeps): Subscriptions {
  const { settings, routes, scope, watch, deliver: onDelivery, isIdle, aborting } = deps
  const { name, maxInFlight, maxInFlightBytes, signals } = settings
  const believed = verified({ transport: settings.transport, settings, isOthers: othersOf(routes) })
  const transport = settings.offsets === 'postgres' ? orderedBy(deps, believed) : believed
  const tellLost = settings.offsets === 'broker' && settings.inbox ? createLostOffsets(settings, scope) : undefined
  const share = Math.max(1, routes.topics.length)
  let receivers: readonly Receiver[] = []
  let closed = new AbortController()
  const closeAll = async (closing: readonly Receiver[]): Promise<void> => {
    await Promise.all(closing.map((receiver) => receiver.close(aborting)))
  }
  return {
    isOpen: () => receivers.length > 0,
    open: async (stopping) => {
      closed = new AbortController()
      watch.opening?.()
      const opening = routes.topics.map((topic) =>
        transport.receive({
          topic,
          consumer: name,
          maxMessages: Math.max(1, Math.floor(maxInFlight / share)),
          maxBytes: Math.max(1, Math.floor(maxInFlightBytes / share)),
          onDelivery,
          onError: (error) => {
            watch.disturbed?.()
            signals.emit('consumer.disturbed', { consumer: name, topic, error })
          },
          givesNothingUp: settings.onPoison === 'stop',
          onBeginning: tellLost && ((partitions) => void tellLost(topic, partitions)),
        }),
      )
      const { signal: closing } = closed
      const opened = await underSignals([stopping, closing], (givenUp) => openAll(opening, givenUp))
      if (stopping.aborted || closing.aborted) return await closeAll(opened)
      receivers = opened
      watch.opened(isIdle)
    },
    close: async () => {
      closed.abort()
      watch.closed()
      const closing = receivers
      receivers = []
      await closeAll(closing)
    },
  }
}

/** The transport with its partitions in line, beginning where our own offsets are. */
function orderedBy(
  { settings, scope, fateOf }: SubscriptionsDeps,
  transport: Pick<Transport, 'receive'>,
): Pick<Transport, 'receive'> {
  const { db, clock } = settings
  return inPartitionOrder({ transport, clock, fateOf, resumeFrom: (asked) => storedOffsets(db, scope, asked) })
}

/**
 * Opens all of them or none: a receiver without an owner would go on delivering after a pause and after the end. Rejects as the first
 * that failed; empty if `stopping` aborts before all are open.
 */
export async function openAll(opening: readonly Promise<Receiver>[], stopping: AbortSignal): Promise<readonly Receiver[]> {
  const results = await unlessAborted(Promise.allSettled(opening), stopping)
  if (results === undefined) {
    // Each by itself: one that never opens must not keep the others.
    for (const each of opening) void each.then((receiver) => receiver.close(AbortSignal.abort())).catch(() => undefined)
    return []
  }
  const opened = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
  const failed = results.find((result) => result.status === 'rejected')
  if (failed === undefined) return opened
  await Promise.all(opened.map((receiver) => receiver.close(AbortSignal.abort())))
  throw failed.reason
}

/**
 * Makes the function that looks, once for each partition of a topic unless that fails, and tells. It never rejects.
 *
 * Kafka forgets the offsets of a group without members after a while (offsets.retention.minutes), and the topic is then read from its
 * beginning. The inbox recognises what it remembers; what the consumer handled before that is handled again, and cannot be told from a
 * new event. A consumer that is new, or no older than the memory of its inbox, is not harmed and not told. Deliveries do not wait for
 * the look: they are too young to pass for what was read before.
 */
export function createLostOffsets(
  { db, name, streams, signals }: Pick<ConsumerSettings, 'db' | 'name' | 'streams' | 'signals'>,
  scope: Scope,
): (topic: string, partitions: readonly string[]) => Promise<void> {
  const told = new Set<string>()
  return async (topic, partitions) => {
    const begun = partitions.filter((partition) => !told.has(`${topic}/${partition}`))
    for (const partition of begun) told.add(`${topic}/${partition}`)
    if (begun.length === 0) return
    const types = streams.filter((stream) => stream.topic === topic).map(({ aggregateType }) => aggregateType)
    try {
      const found = await first(db, selectForgotten(scope, types))
      if (found === undefined) return
      const error = forgotten({ name, topic, partitions: begun, before: found.forgotten_before })
      signals.emit('consumer.disturbed', { consumer: name, topic, error })
    } catch (error) {
      for (const partition of begun) told.delete(`${topic}/${partition}`)
      signals.emit('consumer.disturbed', { consumer: name, topic, error })
    }
  }
}

function forgotten(of: {
  readonly name: string
  readonly topic: string
  readonly partitions: readonly string[]
  readonly before: string
}): WaybillError {
  return new WaybillError(
    'CORRUPT',
    `Consumer ${of.name} has read ${of.topic} before, but the broker has none of its offsets any more. Partitions ${of.partitions.join(', ')} are read from their beginning, and events that it handled before ${of.before}, which its inbox has forgotten, are handled again. Unless versioned upserts are its only effect, pause it and move it to a moment after that: waybill replay ${of.name} --from <time> --skip-older.`,
  )
}
