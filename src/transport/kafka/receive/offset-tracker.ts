/**
 * Which offset of a partition may be committed: the first that is not settled, and so everything before it is.
 *
 * Records are settled in any order. Gaps between their offsets, where others were compacted away, need no settling. What is
 * settled behind one that is not stays here, so a tracked entry has nothing in it that is worth much memory.
 */
import { Fifo } from '../../../core/queue.ts'

export interface Tracked {
  readonly offset: bigint
  isSettled: boolean
}

export class OffsetTracker<Entry extends Tracked> {
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
