/**
 * Decides what becomes of events of streams that this process does not read, as they come.
 *
 *   a running instance of another version reads the stream    put aside, for that one
 *   nobody reads it                                           acknowledged, or a dead letter with `onUnknownStream`
 *   nobody can be asked, because the process stops            given back
 *
 * What would be kept, but is not believed, is refused (see verified.ts).
 *
 * The register is looked at after the event came. Those that come while a look is under way wait for the next one, together.
 */
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { OtherReaders } from '../batch/readers.ts'
import type { UnknownDeps } from '../batch/put-aside.ts'
import type { Fate } from '../model/partition-order.ts'
import type { RawMessage, ReceivedEvent } from '../model/received-event.ts'
import { createRefusals } from '../failure/refused-messages.ts'
import { retryOutages, type StepDeps } from '../failure/retry-outages.ts'
import { distrustOf } from './verified.ts'

export interface StrangerDeps extends StepDeps, Pick<UnknownDeps, 'readers'> {
  readonly settings: Pick<ConsumerSettings, 'db' | 'schema' | 'name' | 'signals' | 'clock' | 'random' | 'onUnknownStream'>
}

export interface Strangers {
  /** Never rejects. */
  fateOf(event: ReceivedEvent, message: RawMessage): Promise<Fate>
  /** How many wait to be decided. */
  readonly count: number
  /** Resolves when nothing is being written. */
  ended(): Promise<void>
}

/** A stream is told of once. */
const mostTold = 1_000
/** After an error that is no outage, such as a missing right. */
const againMs = 5_000

export function createStrangers(deps: StrangerDeps): Strangers {
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
    fateOf: async (event, message) => {
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
    get count() {
      return count
    },
    ended: () => refusals.ended(),
  }
}
