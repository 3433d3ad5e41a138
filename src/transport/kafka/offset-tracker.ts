/**
 * Which offset of a partition may be committed: the first that is not settled, and so everything before it is.
 *
 * Records are settled in any order. Gaps between their offsets, where others were compacted away, need no settling.
 */
import { Fifo } from '../fifo.ts'

export interface Tracked {
  readonly offset: bigint
  isSettled: boolean
}

export class OffsetTracker {
  readonly #unsettled = new Fifo<Tracked>()
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
  get first(): Tracked | undefined {
    return this.#head()
  }

  /** How many records lie between the position and the end, settled ones among them. */
  get size(): number {
    this.#head()
    return this.#unsettled.size
  }

  /** Takes in what was read, in the order of offsets, and where reading goes on. */
  add(records: readonly Tracked[], end: bigint): void {
    for (const record of records) this.#unsettled.push(record)
    if (end > this.#end) this.#end = end
  }

  #head(): Tracked | undefined {
    for (let head = this.#unsettled.peek(); head?.isSettled === true; head = this.#unsettled.peek()) this.#unsettled.take()
    return this.#unsettled.peek()
  }
}
