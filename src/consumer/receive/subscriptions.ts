/**
 * The receivers of a consumer, one a topic, opened and closed together: at its start and end, and around a pause.
 *
 * What may be in hand is shared evenly by the topics. Offsets that are kept in Postgres say where partitions are begun.
 */
import { underSignals } from '../../core/service/abort.ts'
import type { Delivery, Receiver, Transport } from '../../transport/port/transport.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { EngineWatch } from '../model/observer.ts'
import { createForgottenOffsets } from './lost-offsets.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import { allReceivers } from './open-receivers.ts'
import { inPartitionOrder, type PartitionLinesOptions } from '../model/partition-order.ts'
import type { Routes } from '../model/routes.ts'
import { storedOffsets } from '../tables/offsets.ts'
import { othersOf, verified } from './verified.ts'

export interface ReceivingDeps {
  readonly settings: ConsumerSettings
  readonly routes: Pick<Routes, 'topics' | 'stream'>
  readonly scope: Scope
  readonly watch: EngineWatch
  readonly deliver: (delivery: Delivery) => void
  readonly fateOf: PartitionLinesOptions['fateOf']
  readonly isIdle: () => boolean
  readonly aborting: AbortSignal
}

export interface Receiving {
  isOpen(): boolean
  /** Resolves when deliveries can come, however long the broker takes, or when it is closed or stopped before. */
  open(stopping: AbortSignal): Promise<void>
  close(): Promise<void>
}

export function createReceiving(deps: ReceivingDeps): Receiving {
  const { settings, routes, scope, watch, deliver: onDelivery, isIdle, aborting } = deps
  const { name, maxInFlight, maxInFlightBytes, signals } = settings
  const believed = verified({ transport: settings.transport, settings, isOthers: othersOf(routes) })
  const transport = settings.offsets === 'postgres' ? orderedBy(deps, believed) : believed
  const tellForgotten = settings.offsets === 'broker' && settings.inbox ? createForgottenOffsets(settings, scope) : undefined
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
          onBeginning: tellForgotten && ((partitions) => void tellForgotten(topic, partitions)),
        }),
      )
      const { signal: closing } = closed
      const opened = await underSignals([stopping, closing], (givenUp) => allReceivers(opening, givenUp))
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
  { settings, scope, fateOf }: ReceivingDeps,
  transport: Pick<Transport, 'receive'>,
): Pick<Transport, 'receive'> {
  const { db, clock } = settings
  return inPartitionOrder({ transport, clock, fateOf, resumeFrom: (asked) => storedOffsets(db, scope, asked) })
}
