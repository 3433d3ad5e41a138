/**
 * Decides what becomes of events of streams that this process does not read, as they come.
 *
 *   a running instance of another version reads the stream    put aside, for that one
 *   nobody reads it                                           acknowledged, or a dead letter with `onUnknownStream`
 *   nobody can be asked, because the process stops            given back
 *
 * The register is looked at after the event came. Those that come while a look is under way wait for the next one, together.
 */
import type { ConsumerSettings } from './consumer-options.ts'
import type { OtherReaders } from './readers.ts'
import type { UnknownDeps } from './put-aside.ts'
import type { ReceivedEvent } from './received-event.ts'
import { throughOutages, type StepDeps } from './through-outages.ts'

export type Fate = 'aside' | 'ignore' | 'dead-letter' | 'give back'

export interface StrangerDeps extends StepDeps, Pick<UnknownDeps, 'readers'> {
  readonly settings: Pick<ConsumerSettings, 'name' | 'signals' | 'clock' | 'random' | 'onUnknownStream'>
}

export interface Strangers {
  /** Never rejects. */
  fateOf(event: ReceivedEvent, topic: string): Promise<Fate>
  /** How many wait to be decided. */
  readonly count: number
}

/** A stream is told of once. */
const mostTold = 1_000
/** After an error that is no outage, such as a missing right. */
const againMs = 5_000

export function createStrangers(deps: StrangerDeps): Strangers {
  const { readers, stopping, aborting } = deps
  const { name, signals, clock, onUnknownStream } = deps.settings
  const told = new Set<string>()
  let count = 0
  const tell = (aggregateType: string, topic: string): void => {
    if (told.has(aggregateType) || told.size >= mostTold) return
    told.add(aggregateType)
    signals.emit('consumer.ignored', { consumer: name, topic, aggregateType })
  }
  const look = async (topic: string): Promise<OtherReaders | 'give back' | undefined> => {
    for (;;) {
      try {
        return await throughOutages(deps, 1, async () => await readers?.look())
      } catch (error) {
        signals.emit('consumer.disturbed', { consumer: name, topic, error })
        if (stopping.aborted || aborting.aborted) return 'give back'
        await clock.sleep(againMs, stopping)
      }
    }
  }
  return {
    fateOf: async (event, topic) => {
      count += 1
      const others = await look(topic)
      count -= 1
      if (others === 'give back') return others
      if (others?.read(event, 'stream') === true) return 'aside'
      if (onUnknownStream === 'dead-letter') return onUnknownStream
      tell(event.aggregateType, topic)
      return 'ignore'
    },
    get count() {
      return count
    },
  }
}
