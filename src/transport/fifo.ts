/**
 * A first-in-first-out list whose front is taken in constant time, however long it is.
 */

export class Fifo<T> {
  #items: T[] = []
  #head = 0

  get size(): number {
    return this.#items.length - this.#head
  }

  push(item: T): void {
    this.#items.push(item)
  }

  peek(): T | undefined {
    return this.#items[this.#head]
  }

  take(): T | undefined {
    if (this.size === 0) return undefined
    const item = this.#items[this.#head]
    this.#head += 1
    if (this.#head > 1024 && this.#head * 2 > this.#items.length) this.#drop()
    return item
  }

  /** Puts items in among the others, at the place that `compare` gives them. */
  putBack(items: readonly T[], compare: (a: T, b: T) => number): void {
    this.#drop()
    this.#items = [...items, ...this.#items].toSorted(compare)
  }

  /** Takes those out that satisfy `wanted`; the others keep their places. */
  takeWhere(wanted: (item: T) => boolean): T[] {
    this.#drop()
    const { taken = [], left = [] } = Object.groupBy(this.#items, (item) => (wanted(item) ? 'taken' : 'left'))
    this.#items = left
    return taken
  }

  clear(): void {
    this.#items = []
    this.#head = 0
  }

  #drop(): void {
    this.#items = this.#items.slice(this.#head)
    this.#head = 0
  }
}
