/**
 * Where a delivery goes as it comes.
 *
 *   an event of a stream that we read       in line with its aggregate, for a batch
 *   anything that has its place in a log    in line with its partition
 *   no event of ours                        a dead letter
 *   an event of another stream, which
 *     an instance of another version reads  put aside, for that one
 *     no running instance reads             acknowledged, or a dead letter with `onUnknownStream`
 *     cannot be asked about at the end      given back
 *
 * An event of another stream that would be kept, but is not believed, is refused (see verified.ts). The register of instances is looked
 * at after the event came. Events that come while a look is under way wait for the next one, together.
 */
import type { Delivery } from '../../transport/port/transport.ts'
import type { UnknownDeps } from '../batch/put-aside.ts'
import type { OtherReaders } from '../batch/readers.ts'
import type { CrashSuspects } from '../failure/crash-suspects.ts'
import { createRefusals } from '../failure/refused-messages.ts'
import { retryOutages, type StepDeps } from '../failure/retry-outages.ts'
import type { SettleDeps } from '../failure/settle.ts'
import { bytesOf } from '../model/decode.ts'
import type { Fate, PartitionOrderOptions } from '../model/partition-order.ts'
import { isForeign, readEvent, type ForeignMessage, type RawMessage, type ReceivedEvent } from '../model/received-event.ts'
import type { Routes } from '../model/routes.ts'
import type { Batcher } from './batcher.ts'
import { placeOfDelivery, settleForeign, toEntry, type Entry } from './direct.ts'
import { distrustOf } from './verified.ts'

export interface ArrivalDeps extends SettleDeps, StepDeps, Pick<UnknownDeps, 'readers'> {
  readonly settings: SettleDeps['settings']
  readonly routes: Routes
  readonly batcher: Batcher<Entry>
  readonly suspects: Pick<CrashSuspects, 'isSlow'>
}

export interface Arrivals {
  readonly deliver: (delivery: Delivery) => void
  readonly fateOf: NonNullable<PartitionOrderOptions['fateOf']>
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
    isIdle: strangers.isIdle,
    ended: async () => {
      await decisions.ended()
      await strangers.ended()
    },
  }
}

/** A stream is told of once. */
const mostTold = 1_000
/** After an error that is no outage, such as a missing right. */
const againMs = 5_000

/** Decides about events of streams that this process does not read. */
function createStrangers(deps: ArrivalDeps) {
  const { readers, stopping, aborting } = deps
  const { name, signals, clock, onUnknownStream } = deps.settings
  const told = new Set<string>()
  const refusals = createRefusals(deps.settings)
  let count = 0
  const tell = (aggregateType: string, topic: string): void => {
    if (told.has(aggregateType) || told.size >= mostTold) return
    told.add(aggregateType)
    signals.emit('consumer.ignored', { consumer: name, topic, aggregateType })
  }
  const look = async (topic: string): Promise<OtherReaders | 'give back' | undefined> => {
    for (;;) {
      try {
        return await retryOutages(deps, 1, async () => await readers?.look())
      } catch (error) {
        signals.emit('consumer.disturbed', { consumer: name, topic, error })
        if (stopping.aborted || aborting.aborted) return 'give back'
        await clock.sleep(againMs, stopping)
      }
    }
  }
  return {
    /** Never rejects. */
    fateOf: async (event: ReceivedEvent, message: RawMessage): Promise<Fate> => {
      count += 1
      const others = await look(message.topic)
      count -= 1
      if (others === 'give back') return others
      const fate = others?.read(event, 'stream') === true ? 'aside' : onUnknownStream
      const distrust = distrustOf(message)
      if (fate === 'ignore') tell(event.aggregateType, message.topic)
      else if (distrust !== undefined) refusals.refuse(message, distrust)
      return distrust === undefined ? fate : 'ignore'
    },
    isIdle: () => count === 0,
    /** Resolves when nothing is being written. */
    ended: () => refusals.ended(),
  }
}

/** Work under way that no batch waits for. It never rejects. */
export function createUnderWay(): { readonly add: (work: Promise<void>) => void; readonly ended: () => Promise<void> } {
  const underWay = new Set<Promise<void>>()
  return {
    add: (work) => {
      underWay.add(work)
      void work.then(() => underWay.delete(work))
    },
    ended: async () => void (await Promise.all(underWay)),
  }
}
