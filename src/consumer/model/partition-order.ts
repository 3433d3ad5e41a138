/**
 * Hands over the deliveries of each partition in the order of the log, also after a failure: the one that was given back
 * comes first again, and whatever came behind it after it. Nothing is given back to the broker while we receive.
 *
 *   queued ──▶ handed ──ack──▶ gone
 *     ▲          │ nack: so are all behind it; handed out again when the last of them is back and the rest is over
 *     └──────────┘
 *
 * A transport that can is told: a partition that stands still takes nothing more, and no room from the others.
 *
 * The first one of a partition asks once more what is stored before it is handed out again.
 *
 * Each delivery is told where the one before it ended. Offsets may have holes, so only who has seen the log in order knows
 * that nothing was left out. What is ignored leaves a hole too: the next one stands for it. Where that is still to be decided, what
 * is behind it waits.
 */
import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { unlessLate } from '../../core/service/abort.ts'
import { isAnother } from '../../transport/port/topic-id.ts'
import type { Delivery, IncomingMessage, ReceiveOptions, Receiver, Transport } from '../../transport/port/transport.ts'

/** Where a delivery is in the log. */
export interface Place {
  readonly topic: string
  readonly partition: string
  readonly offset: bigint
  /** Where the one before it ended: nothing lies between. */
  readonly from: bigint
  /** It is the first of a partition of which nothing was stored. */
  readonly begins: boolean
  /** The topic that the log is of, where the broker tells topics of one name apart. */
  readonly topicId?: string | undefined
  /** What was stored is of this other topic, and so it counts for nothing. Only where it begins. */
  readonly replaces?: string | undefined
}

export interface StoredOffset {
  readonly next: bigint
  /** The topic that it is of; undefined if that was never known. */
  readonly topicId: string | undefined
}

/** What becomes of an event of a stream that this process does not read. */
export type Fate = 'aside' | 'ignore' | 'dead-letter' | 'give back'

export interface PlacedDelivery extends Delivery {
  readonly place: Place
  /** What was decided, if there was anything to decide. */
  readonly fate: Fate | undefined
}

export interface PartitionOrderOptions {
  readonly transport: Pick<Transport, 'receive'>
  readonly clock: Clock
  /** Asked of each message as it comes: what becomes of it, if that is not plain. @default nothing to decide */
  readonly fateOf?: ((message: IncomingMessage) => Promise<Fate> | undefined) | undefined
  /** Where to begin with these partitions, as far as it is stored. */
  readonly resumeFrom: (asked: {
    readonly topic: string
    readonly partitions: readonly string[]
    readonly topicId: string | undefined
  }) => Promise<ReadonlyMap<string, StoredOffset>>
}

/** One text for a partition, for maps. */
export function lineOfPlace({ topic, partition }: Pick<Place, 'topic' | 'partition'>): string {
  return `${topic}\u0000${partition}`
}

/** The same deliveries, in line and placed. */
export function inPartitionOrder({ transport, clock, fateOf, resumeFrom }: PartitionOrderOptions): Pick<Transport, 'receive'> {
  return {
    receive: async (options) => {
      const lines = new Map<string, PartitionLine>()
      let open = true
      let turn = 0
      const { topic, onDelivery, onError } = options
      const storedNow: LineOptions['storedNow'] = async (partition, topicId) =>
        (await resumeFrom({ topic, partitions: [partition], topicId })).get(partition)
      const openLine = (partition: string, start: Pick<LineOptions, 'from' | 'topicId' | 'replaces'>): PartitionLine => {
        const before = lines.get(partition)
        before?.close()
        const line = new PartitionLine({
          topic,
          partition,
          ...start,
          clock,
          fateOf,
          onDelivery,
          storedNow,
          before: before?.topicIds ?? [],
        })
        lines.set(partition, line)
        return line
      }
      const receiver = await transport.receive({
        ...options,
        resumeFrom: async (partitions, topicId) => {
          const asked = (turn += 1)
          const stored = await resumeFrom({ topic, partitions, topicId })
          // Who asked is gone: the lines are of whoever asked since, and they go on.
          if (asked !== turn) return new Map()
          const others = [...stored.keys()].filter((partition) => isAnother(stored.get(partition)?.topicId, topicId))
          if (others.length > 0) onError(ofAnotherTopic(topic, others))
          for (const partition of partitions) {
            const at = stored.get(partition)
            if (others.includes(partition)) openLine(partition, { from: undefined, topicId, replaces: at?.topicId })
            else openLine(partition, { from: at?.next, topicId, replaces: undefined })
          }
          return new Map([...stored].map(([partition, { next }]) => [partition, others.includes(partition) ? 'earliest' : next]))
        },
        onDelivery: (delivery) => {
          const { position } = delivery.message
          if (position === undefined) return refuse(delivery, options)
          const line = lines.get(position.partition) ?? openLine(position.partition, nowhere)
          if (open) line.push(delivery, position.offset)
          else void delivery.nack()
        },
      })
      return closing(receiver, () => {
        open = false
        for (const line of lines.values()) line.close()
      })
    },
  }
}

interface Held {
  delivery: Delivery
  readonly offset: bigint
  place: Place | undefined
  /** Or that it is being decided. */
  fate: Fate | 'open' | undefined
  state: 'queued' | 'handed' | 'returned' | 'gone'
  /** How often it was handed out: who had it earlier can settle it no more. */
  turn: number
}

/** Nobody was asked where it begins. */
const nowhere = { from: undefined, topicId: undefined, replaces: undefined }

interface LineOptions extends Pick<Place, 'topic' | 'partition'>, Pick<PartitionOrderOptions, 'fateOf'> {
  readonly from: bigint | undefined
  readonly topicId: string | undefined
  readonly replaces: string | undefined
  /** Which topics of the name were read here before. */
  readonly before: readonly string[]
  readonly storedNow: (partition: string, topicId: string) => Promise<StoredOffset | undefined>
  readonly clock: Clock
  readonly onDelivery: (delivery: PlacedDelivery) => void
}

/** Who gives back without a delay gets it again after this long: somebody else is at work. */
const shortestRestMs = 20
const withoutPositionMs = 60_000
/** A database that does not answer is asked again, when the delivery has come back once more. */
const answerMs = 5_000
/** Who is refused for so long and was not told that the partition is another's has it. */
const lastingMs = 60_000

class PartitionLine {
  readonly #options: LineOptions
  /** By offset, in the order of the log. */
  readonly #held = new Map<bigint, Held>()
  #handed = 0
  /** Where the last that was handed out ended. */
  #from: bigint | undefined
  #begins: boolean
  #last = -1n
  #restsUntilMs = 0
  #firstReturnMs: number | undefined
  /** One was given back: nothing is handed out before all of them are. */
  #isBroken = false
  /** The next one to be handed out is still to be decided. */
  #isUndecided = false
  /** Ends a rest, which would keep the process alive. */
  readonly #closed = new AbortController()

  constructor(options: LineOptions) {
    this.#options = options
    this.#from = options.from
    this.#begins = options.from === undefined
  }

  /** Every topic of the name that was read here, each once. */
  get topicIds(): readonly string[] {
    const { before, topicId } = this.#options
    return topicId === undefined ? before : [...new Set([...before, topicId])]
  }

  get #isOpen(): boolean {
    return !this.#closed.signal.aborted
  }

  push(delivery: Delivery, offset: bigint): void {
    if (!this.#isOpen) return void delivery.nack()
    if (offset <= this.#last) return this.#pushAgain(delivery, offset)
    this.#last = offset
    const deciding = this.#options.fateOf?.(delivery.message)
    const fate = deciding === undefined ? undefined : 'open'
    const held: Held = { delivery, offset, place: undefined, fate, state: 'queued', turn: 0 }
    this.#held.set(offset, held)
    if (deciding !== undefined) void deciding.then((decided) => this.#decided(held, decided))
    if (!this.#isBroken && !this.#isUndecided) this.#hand(held)
  }

  /** Hands out nothing more; what is not in the consumer's hands goes back to the broker. */
  close(): void {
    this.#closed.abort()
    for (const held of this.#held.values()) if (held.state !== 'handed') void held.delivery.nack()
    this.#held.clear()
  }

  /** One that is still in line takes the place of its earlier delivery; any other is done. */
  #pushAgain(delivery: Delivery, offset: bigint): void {
    const known = this.#held.get(offset)
    if (known === undefined) void delivery.ack()
    else known.delivery = delivery
  }

  /** One that is to be given back stays in line: its partition is closed next. */
  #decided(held: Held, fate: Fate): void {
    if (fate === 'give back') return
    held.fate = fate
    if (this.#isUndecided && !this.#isBroken) this.#handQueued()
  }

  /** Begins again with what was given back, when all of it is and its rest is over. */
  #mend(): void {
    if (!this.#isOpen || !this.#isBroken || this.#handed > 0) return
    const restMs = this.#restsUntilMs - this.#options.clock.monotonicMs()
    if (restMs > 0) return void this.#options.clock.sleep(restMs, this.#closed.signal).then(() => this.#mend())
    const [first] = this.#held.values()
    if (first?.place?.begins === true && first.place.topicId !== undefined) void this.#beginAnew(first, first.place)
    else this.#handAgain()
  }

  /**
   * What is stored may have come after we asked: from a batch of the topic before, which was under way then. It is replaced if that
   * topic was read here, or after a while: else who is late with the topic before would take its place from the one that is there.
   * Without an answer the delivery comes back as it was, and asks again.
   */
  async #beginAnew(first: Held, place: Place): Promise<void> {
    const { clock, before, storedNow } = this.#options
    const { partition, topicId = '' } = place
    const stored = await unlessLate(storedNow(partition, topicId), answerMs, clock).catch(() => undefined)
    const other = stored?.topicId
    const isLasting = clock.monotonicMs() - (this.#firstReturnMs ?? Infinity) >= lastingMs
    if (other !== undefined && other !== topicId && (isLasting || before.includes(other)))
      first.place = { ...place, replaces: other }
    this.#handAgain()
  }

  #handAgain(): void {
    this.#isBroken = false
    for (const held of this.#held.values()) held.state = 'queued'
    this.#handQueued()
  }

  #handQueued(): void {
    this.#isUndecided = false
    for (const held of this.#held.values()) if (held.state === 'queued' && !this.#isBroken && !this.#isUndecided) this.#hand(held)
  }

  #hand(held: Held): void {
    if (!this.#isOpen) return
    // Its partition is lost, and whatever comes behind it would not follow on what is done.
    if (held.delivery.lost.aborted) return this.close()
    const { fate } = held
    if (fate === 'open') return void (this.#isUndecided = true)
    if (fate === 'ignore') return this.#passOver(held)
    const { topic, partition, topicId, onDelivery } = this.#options
    const { offset } = held
    const replaces = this.#begins ? this.#options.replaces : undefined
    held.place ??= { topic, partition, offset, from: this.#from ?? offset, begins: this.#begins, topicId, replaces }
    held.state = 'handed'
    this.#handed += 1
    held.turn += 1
    const { turn } = held
    this.#from = offset + 1n
    this.#begins = false
    onDelivery({
      message: held.delivery.message,
      lost: held.delivery.lost,
      place: held.place,
      fate,
      ack: () => {
        this.#settle(held, turn)
        return held.delivery.ack()
      },
      nack: (delayMs) => this.#return(held, turn, delayMs),
    })
  }

  /** The next one stands for it. */
  #passOver(held: Held): void {
    this.#from ??= held.offset
    held.state = 'gone'
    this.#held.delete(held.offset)
    void held.delivery.ack()
  }

  #settle(held: Held, turn: number): void {
    if (held.state !== 'handed' || held.turn !== turn) return
    held.state = 'gone'
    this.#handed -= 1
    this.#held.delete(held.offset)
    this.#mend()
  }

  async #return(held: Held, turn: number, delayMs = 0): Promise<void> {
    if (held.state !== 'handed' || held.turn !== turn) return
    this.#handed -= 1
    held.state = this.#isOpen ? 'returned' : 'gone'
    if (!this.#isOpen) return await held.delivery.nack(delayMs)
    this.#isBroken = true
    held.delivery.stall?.()
    const nowMs = this.#options.clock.monotonicMs()
    this.#firstReturnMs ??= nowMs
    this.#restsUntilMs = Math.max(this.#restsUntilMs, nowMs + Math.max(shortestRestMs, delayMs))
    this.#mend()
  }
}

function closing(receiver: Receiver, close: () => void): Receiver {
  return {
    close: async (aborting) => {
      close()
      await receiver.close(aborting)
    },
  }
}

function ofAnotherTopic(topic: string, partitions: readonly string[]): WaybillError {
  return new WaybillError(
    'CORRUPT',
    `What is stored of ${topic}, partitions ${partitions.join(', ')} is of another topic: it was deleted and made again, or this is another cluster. The topic is read from its beginning; what the other had and was not read is not read any more.`,
  )
}

function refuse(delivery: Delivery, { topic, onError }: ReceiveOptions): void {
  onError(new Error(`A message of ${topic} has no position in a log: offsets: 'postgres' needs a transport with partitions.`))
  void delivery.nack(withoutPositionMs)
}
