/**
 * A first-in-first-out list whose front is taken in constant time, however long it is. What was taken is let go at once.
 */

export class Fifo<T> {
  /** Empty before the head. */
  #items: (T | undefined)[] = []
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
    this.#items[this.#head] = undefined
    this.#head += 1
    if (this.#head > 1024 && this.#head * 2 > this.#items.length) {
      this.#items = this.#left()
      this.#head = 0
    }
    return item
  }

  /** Puts items in among the others, at the place that `compare` gives them. */
  putBack(items: readonly T[], compare: (a: T, b: T) => number): void {
    this.#items = [...items, ...this.#left()].toSorted(compare)
    this.#head = 0
  }

  /** Takes those out that satisfy `wanted`; the others keep their places. */
  takeWhere(wanted: (item: T) => boolean): T[] {
    const { taken = [], left = [] } = Object.groupBy(this.#left(), (item) => (wanted(item) ? 'taken' : 'left'))
    this.#items = left
    this.#head = 0
    return taken
  }

  clear(): void {
    this.#items = []
    this.#head = 0
  }

  #left(): T[] {
    return this.#items.slice(this.#head) as T[]
  }
}
