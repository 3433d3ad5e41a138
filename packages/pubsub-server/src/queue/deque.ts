/**
 * A queue on a ring: adding and taking at its ends cost the same whatever its length.
 *
 * The ring halves when it is mostly empty, so a backlog that has drained gives its memory back.
 */
export class Deque<T> {
  #ring: Array<T | undefined> = new Array<T | undefined>(16)
  #head = 0
  #length = 0

  get length(): number {
    return this.#length
  }

  push(item: T): void {
    if (this.#length === this.#ring.length) this.#resize(this.#length * 2)
    this.#ring[(this.#head + this.#length) & (this.#ring.length - 1)] = item
    this.#length += 1
  }

  unshift(item: T): void {
    if (this.#length === this.#ring.length) this.#resize(this.#length * 2)
    this.#head = (this.#head - 1) & (this.#ring.length - 1)
    this.#ring[this.#head] = item
    this.#length += 1
  }

  shift(): T | undefined {
    if (this.#length === 0) return undefined
    const item = this.#ring[this.#head]
    this.#ring[this.#head] = undefined
    this.#head = (this.#head + 1) & (this.#ring.length - 1)
    this.#length -= 1
    if (this.#ring.length > 64 && this.#length < this.#ring.length / 8) this.#resize(this.#ring.length / 4)
    return item
  }

  /** The item at `index`, counted from the front. */
  at(index: number): T | undefined {
    return index < 0 || index >= this.#length ? undefined : this.#ring[(this.#head + index) & (this.#ring.length - 1)]
  }

  /** Exchanges the front with the item at `index`. */
  swapFront(index: number): void {
    if (index <= 0 || index >= this.#length) return
    const at = (this.#head + index) & (this.#ring.length - 1)
    const front = this.#ring[this.#head]
    this.#ring[this.#head] = this.#ring[at]
    this.#ring[at] = front
  }

  *[Symbol.iterator](): Generator<T> {
    for (let i = 0; i < this.#length; i += 1) yield this.at(i) as T
  }

  clear(): void {
    this.#ring = new Array<T | undefined>(16)
    this.#head = 0
    this.#length = 0
  }

  #resize(size: number): void {
    const ring = new Array<T | undefined>(size)
    for (let i = 0; i < this.#length; i += 1) ring[i] = this.#ring[(this.#head + i) & (this.#ring.length - 1)]
    this.#ring = ring
    this.#head = 0
  }
}
