/**
 * The part of a partition that was read and is not committed: what waits, what is in hand, what was given back.
 *
 *   append ──▶ waiting ──take──▶ in hand ──settle──▶ settled
 *                 ▲                 │
 *                 └──── release ◀── held ◀── giveBack, and what is behind it under its key
 *
 * A record that was given back holds its key until its time has come: the key's later records wait behind it, other keys go
 * on. The window says how far the partition may be committed; it grows while an early record is held, up to its bound.
 *
 * A record in hand may stall it: until that one is settled or given back, nothing more is handed out.
 */
import { Fifo } from '../../../core/queue.ts'
import type { IncomingMessage } from '../../port/transport.ts'
import { detached } from '../client/wire/event-records.ts'

export interface WindowEntry {
  readonly offset: bigint
  message: IncomingMessage
  readonly bytes: number
  readonly mark: Mark
}

/** What the tracker knows of an entry: not its message, which is let go when it is settled. */
interface Mark extends Tracked {
  isHeld: boolean
}

interface Hold {
  untilMs: number
  readonly entries: WindowEntry[]
}

export class PartitionWindow {
  readonly partition: number
  readonly #tracker: OffsetTracker<Mark>
  readonly #waiting = new Fifo<WindowEntry>()
  /** By key, as what is held; a record without a key stands for itself. */
  readonly #inHand = new Map<string | WindowEntry, Set<WindowEntry>>()
  readonly #holds = new Map<string | WindowEntry, Hold>()
  readonly #stalling = new Set<WindowEntry>()
  #dueMs = Infinity
  #inHandMessages = 0
  #inHandBytes = 0
  #waitingBytes = 0
  #heldBytes = 0

  constructor(partition: number, start: bigint) {
    this.partition = partition
    this.#tracker = new OffsetTracker(start)
  }

  /** The offset to commit: everything before it is settled. */
  get position(): bigint {
    return this.#tracker.position
  }

  /** The offset to read next. */
  get end(): bigint {
    return this.#tracker.end
  }

  /** Records between the position and the end. */
  get size(): number {
    return this.#tracker.size
  }

  get inHandMessages(): number {
    return this.#inHandMessages
  }

  get inHandBytes(): number {
    return this.#inHandBytes
  }

  get isStalled(): boolean {
    return this.#stalling.size > 0
  }

  get waitingMessages(): number {
    return this.#waiting.size
  }

  get waitingBytes(): number {
    return this.#waitingBytes
  }

  get heldBytes(): number {
    return this.#heldBytes
  }

  /** Before this moment nothing that is held is due. */
  get dueMs(): number {
    return this.#dueMs
  }

  /** Whether the position cannot move before something that was given back has come again. */
  get isHeld(): boolean {
    return this.#tracker.first?.isHeld === true
  }

  append(
    messages: readonly { readonly message: IncomingMessage; readonly offset: bigint; readonly bytes: number }[],
    end: bigint,
  ): void {
    const entries = messages.map(({ message, offset, bytes }): WindowEntry => {
      return { offset, message, bytes, mark: { offset, isHeld: false, isSettled: false } }
    })
    this.#tracker.add(
      entries.map(({ mark }) => mark),
      end,
    )
    for (const entry of entries) {
      this.#waiting.push(entry)
      this.#waitingBytes += entry.bytes
    }
  }

  /** The next record that may be handed out. Those of held keys are put aside on the way. */
  peek(): WindowEntry | undefined {
    if (this.isStalled) return undefined
    for (let entry = this.#waiting.peek(); entry !== undefined; entry = this.#waiting.peek()) {
      const hold = this.#holds.size === 0 ? undefined : this.#holds.get(keyOf(entry))
      if (hold === undefined) return entry
      this.#waiting.take()
      this.#waitingBytes -= entry.bytes
      this.#hold(hold, entry)
    }
    return undefined
  }

  /** Takes the record that `peek` showed into hand. */
  take(): WindowEntry | undefined {
    const entry = this.peek()
    if (entry === undefined) return undefined
    this.#waiting.take()
    this.#waitingBytes -= entry.bytes
    this.#inHandMessages += 1
    this.#inHandBytes += entry.bytes
    const siblings = this.#inHand.get(keyOf(entry))
    if (siblings === undefined) this.#inHand.set(keyOf(entry), new Set([entry]))
    else siblings.add(entry)
    return entry
  }

  /** Hands out nothing more before this one, which is in hand, no longer is. */
  stall(entry: WindowEntry): void {
    this.#stalling.add(entry)
  }

  settle(entry: WindowEntry): void {
    this.#letGo(entry)
    entry.mark.isSettled = true
  }

  /** Holds a record in hand until `untilMs`, and returns those of its key behind it that were in hand and are no longer. */
  giveBack(entry: WindowEntry, untilMs: number): readonly WindowEntry[] {
    const behind = [...(this.#inHand.get(keyOf(entry)) ?? [])].filter(({ offset }) => offset > entry.offset)
    const hold = this.#holds.get(keyOf(entry)) ?? { untilMs, entries: [] }
    hold.untilMs = Math.max(hold.untilMs, untilMs)
    this.#holds.set(keyOf(entry), hold)
    this.#dueMs = Math.min(this.#dueMs, hold.untilMs)
    for (const each of [entry, ...behind]) {
      this.#letGo(each)
      this.#hold(hold, each)
    }
    return behind
  }

  /**
   * Lets those wait again whose time has come, with all of their keys behind them. They stand behind the other keys: in front,
   * keys that fail again and again would take every turn.
   */
  release(nowMs: number): void {
    if (nowMs < this.#dueMs) return
    const due = [...this.#holds].filter(([, { untilMs }]) => untilMs <= nowMs)
    for (const [key] of due) this.#holds.delete(key)
    this.#dueMs = Infinity
    for (const { untilMs } of this.#holds.values()) this.#dueMs = Math.min(this.#dueMs, untilMs)
    const entries = due.flatMap(([, hold]) => hold.entries)
    for (const entry of entries) {
      entry.mark.isHeld = false
      this.#heldBytes -= entry.bytes
      this.#waitingBytes += entry.bytes
    }
    const keys = new Set(due.map(([key]) => key))
    const behind = this.#waiting.takeWhere((entry) => keys.has(keyOf(entry)))
    for (const entry of [...entries, ...behind].toSorted(byOffset)) this.#waiting.push(entry)
  }

  #letGo(entry: WindowEntry): void {
    this.#inHandMessages -= 1
    this.#inHandBytes -= entry.bytes
    this.#stalling.delete(entry)
    const siblings = this.#inHand.get(keyOf(entry))
    siblings?.delete(entry)
    if (siblings?.size === 0) this.#inHand.delete(keyOf(entry))
  }

  #hold(hold: Hold, entry: WindowEntry): void {
    entry.mark.isHeld = true
    // Held, it may stay for long, and its bytes are counted by themselves: it must not keep all the others of its answer.
    entry.message = detached(entry.message)
    hold.entries.push(entry)
    this.#heldBytes += entry.bytes
  }
}

function byOffset(a: WindowEntry, b: WindowEntry): number {
  return a.offset < b.offset ? -1 : 1
}

function keyOf(entry: WindowEntry): string | WindowEntry {
  return entry.message.orderingKey ?? entry
}

/**
 * Which offset of a partition may be committed: the first that is not settled, and so everything before it is.
 *
 * Records are settled in any order. Gaps between their offsets, where others were compacted away, need no settling. What is
 * settled behind one that is not stays here, so a tracked entry has nothing in it that is worth much memory.
 */
interface Tracked {
  readonly offset: bigint
  isSettled: boolean
}

class OffsetTracker<Entry extends Tracked> {
  readonly #unsettled = new Fifo<Entry>()
  #end: bigint

  /** @param start where reading begins */
  constructor(start: bigint) {
    this.#end = start
  }

  /** Where reading goes on. */
  get end(): bigint {
    return this.#end
  }

  /** From here on nothing is known to be done. */
  get position(): bigint {
    return this.#head()?.offset ?? this.#end
  }

  /** The first record that is not settled. */
  get first(): Entry | undefined {
    return this.#head()
  }

  /** How many records lie between the position and the end, settled ones among them. */
  get size(): number {
    this.#head()
    return this.#unsettled.size
  }

  /** Takes in what was read, in the order of offsets, and where reading goes on. */
  add(records: readonly Entry[], end: bigint): void {
    for (const record of records) this.#unsettled.push(record)
    if (end > this.#end) this.#end = end
  }

  #head(): Entry | undefined {
    for (let head = this.#unsettled.peek(); head?.isSettled === true; head = this.#unsettled.peek()) this.#unsettled.take()
    return this.#unsettled.peek()
  }
}
