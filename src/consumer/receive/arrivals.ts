/**
 * Where a delivery goes as it comes.
 *
 *   an event of a stream that we read       in line with its aggregate, for a batch
 *   anything that has its place in a log    in line with its partition
 *   an event of another stream              as decided with a look at the other instances (see strangers.ts)
 *   no event of ours                        a dead letter
 */
import type { Clock } from '../../core/service/clock.ts'
import type { Delivery } from '../../transport/port/transport.ts'
import type { CrashSuspects } from '../failure/crash-suspects.ts'
import type { StepDeps } from '../failure/retry-outages.ts'
import type { SettleDeps } from '../failure/settle.ts'
import { bytesOf } from '../model/decode.ts'
import type { PartitionLinesOptions } from '../model/partition-order.ts'
import { isForeign, readEvent, type ForeignMessage, type ReceivedEvent } from '../model/received-event.ts'
import type { Routes } from '../model/routes.ts'
import type { Batcher } from './batcher.ts'
import { placeOfDelivery, settleForeign, toEntry, type Entry } from './direct.ts'
import { createStrangers, type StrangerDeps } from './strangers.ts'

export interface ArrivalDeps extends SettleDeps, StepDeps, Pick<StrangerDeps, 'readers'> {
  readonly settings: SettleDeps['settings'] & { readonly clock: Clock }
  readonly routes: Routes
  readonly batcher: Batcher<Entry>
  readonly suspects: Pick<CrashSuspects, 'isSlow'>
}

export interface Arrivals {
  readonly deliver: (delivery: Delivery) => void
  readonly fateOf: NonNullable<PartitionLinesOptions['fateOf']>
  /** No event waits for a decision. */
  readonly isIdle: () => boolean
  /** Resolves when every decision is made and settled. */
  readonly ended: () => Promise<void>
}

export function createArrivals(deps: ArrivalDeps): Arrivals {
  const { settings, routes, batcher, suspects } = deps
  const strangers = createStrangers(deps)
  const decisions = createUnderWay()
  const push = (delivery: Delivery, event: ReceivedEvent | ForeignMessage): void => {
    const isStored = settings.mode === 'stored'
    // A message that is stored as it comes is neither fetched nor tried by the batch.
    const bytes = isStored ? delivery.message.body.byteLength : bytesOf(delivery.message, event, routes)
    const isSuspect = !isStored && !isForeign(event) && suspects.isSlow({ event })
    batcher.push(toEntry(delivery, event, { bytes, isSuspect, sinceMs: settings.clock.monotonicMs() }))
  }
  const settleStranger = async (delivery: Delivery, event: ReceivedEvent): Promise<void> => {
    const fate = await strangers.fateOf(event, delivery.message)
    if (fate === 'aside') push(delivery, event)
    else if (fate === 'dead-letter') await settleForeign(deps, delivery, event)
    else void (fate === 'ignore' ? delivery.ack() : delivery.nack())
  }
  return {
    deliver: (delivery) => {
      const event = readEvent(delivery.message)
      if (placeOfDelivery(delivery) !== undefined) return push(delivery, event)
      if (isForeign(event)) return void settleForeign(deps, delivery, event)
      if (routes.stream(event.aggregateType) !== undefined) return push(delivery, event)
      decisions.add(settleStranger(delivery, event))
    },
    fateOf: (message) => {
      if (routes.stream(message.attributes['aggregate_type'] ?? '') !== undefined) return undefined
      const event = readEvent(message)
      return isForeign(event) ? undefined : strangers.fateOf(event, message)
    },
    isIdle: () => strangers.count === 0,
    ended: async () => {
      await decisions.ended()
      await strangers.ended()
    },
  }
}

export interface UnderWay {
  readonly add: (work: Promise<void>) => void
  readonly ended: () => Promise<void>
}

/** Work under way that no batch waits for. It never rejects. */
export function createUnderWay(): UnderWay {
  const underWay = new Set<Promise<void>>()
  return {
    add: (work) => {
      underWay.add(work)
      void work.then(() => underWay.delete(work))
    },
    ended: async () => void (await Promise.all(underWay)),
  }
}
