/**
 * Up to which seq everything is decided: whoever had taken one has committed or rolled back, so nothing appears below any more.
 *
 * Seqs are taken before they are committed, so that what is visible says nothing about what is still to come. A reading says
 * how far the sequence was, with a transaction id that is younger than whoever had a seq by then. When a later reading finds no
 * older transaction running, the first is decided. A transaction that stays open keeps the horizon where it is, however long:
 * what came since is then looked at again and again, and never passed over.
 */
import type { HorizonRow } from './transport.sql.ts'

const readEveryMs = 1_000

export class Horizon {
  #reading: HorizonRow | undefined
  #readAtMs = -Infinity
  decided = '0'
  /** Whether anything rests, which is what a horizon is needed for. */
  wanted = false

  isDue(nowMs: number): boolean {
    return this.wanted && nowMs - this.#readAtMs >= readEveryMs
  }

  see(reading: HorizonRow, nowMs: number): void {
    this.#readAtMs = nowMs
    const before = this.#reading
    // A server that took over may have lost the end of the sequence: those seqs are given again.
    if (BigInt(reading.seq) < BigInt(this.decided)) this.decided = '0'
    if (before === undefined || BigInt(reading.seq) < BigInt(before.seq)) this.#reading = reading
    else if (BigInt(reading.oldest) >= BigInt(before.xid)) {
      this.decided = before.seq
      this.#reading = reading
    }
  }
}
