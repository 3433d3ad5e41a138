/**
 * Remembers the last ids it was given, at least `capacity` and at most twice as many of them.
 *
 * An acknowledgement whose answer got lost is sent again; remembered, it succeeds again instead of looking invalid.
 */
export class RecentIds {
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
