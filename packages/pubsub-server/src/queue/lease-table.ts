/**
 * The leases of one subscription, found by the number that stands in an acknowledgement id.
 *
 * The lower half of the number is a slot of the table, so nothing is searched for; the upper half differs each time
 * the slot is used, so an id names one lease only, and none after that has ended.
 */
import { half } from '../protocol/digits.ts'
import type { Entry } from './entry.ts'

export class LeaseTable {
  readonly #slots: Array<Entry | undefined> = []
  readonly #free: number[] = []
  readonly #acked = new RecentIds(10_000)

  get size(): number {
    return this.#slots.length - this.#free.length
  }

  /** The entry under that lease, if the lease has not ended. */
  find(leaseId: number): Entry | undefined {
    const entry = this.#slots[leaseId % half]
    return entry?.leaseId === leaseId ? entry : undefined
  }

  add(entry: Entry, nonce: number): void {
    entry.nonce = nonce
    entry.slot = this.#free.pop() ?? this.#slots.length
    this.#slots[entry.slot] = entry
  }

  remove(entry: Entry): void {
    this.#slots[entry.slot] = undefined
    this.#free.push(entry.slot)
    entry.slot = -1
  }

  rememberAck(leaseId: number): void {
    this.#acked.add(leaseId)
  }

  wasAcked(leaseId: number): boolean {
    return this.#acked.has(leaseId)
  }

  *entries(): Generator<Entry> {
    for (const entry of this.#slots) if (entry !== undefined) yield entry
  }
}

/**
 * Remembers the last ids it was given, at least `capacity` and at most twice as many of them.
 *
 * An acknowledgement whose answer got lost is sent again; remembered, it succeeds again instead of looking invalid.
 */
class RecentIds {
  readonly #capacity: number
  #current = new Set<number>()
  #previous = new Set<number>()

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  add(id: number): void {
    if (this.#current.size >= this.#capacity) {
      this.#previous = this.#current
      this.#current = new Set()
    }
    this.#current.add(id)
  }

  has(id: number): boolean {
    return this.#current.has(id) || this.#previous.has(id)
  }
}
