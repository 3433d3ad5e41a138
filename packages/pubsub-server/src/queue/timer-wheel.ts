/**
 * Every deadline of the server on one timer.
 *
 * Deadlines are kept in buckets of ten milliseconds, each a doubly linked list through the items themselves:
 * setting, moving and cancelling one costs the same with one lease or with a million, and a cancelled deadline
 * keeps nothing alive. Nothing fires early; it may fire one bucket late.
 */
import type { Clock } from '../model/clock.ts'

/** Something with a deadline. The wheel owns the three link fields. */
export interface Timed {
  bucket: Bucket | null
  previous: Timed | null
  next: Timed | null
  /** Called once when the deadline has passed. */
  due(): void
}

export interface Bucket {
  first: Timed | null
  last: Timed | null
}

const tickMs = 10

export class TimerWheel {
  readonly #clock: Clock
  readonly #buckets = new Map<number, Bucket>()
  /** A binary heap of the ticks that have a bucket; an emptied bucket stays until its tick has passed. */
  readonly #ticks: number[] = []
  /** Deadlines come in runs of the same tick. */
  #lastTick = -1
  #lastBucket: Bucket | null = null
  #wakeTick = Infinity
  #wake: AbortController | null = null
  #isClosed = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  nowMs(): number {
    return this.#clock.monotonicMs()
  }

  /** Sets the deadline of `item`, replacing the one it had. */
  set(item: Timed, delayMs: number): void {
    this.setAt(item, this.nowMs() + delayMs)
  }

  /** Like `set`, for a time by `nowMs`: many deadlines at once need the clock only once. */
  setAt(item: Timed, atMs: number): void {
    if (item.bucket !== null) this.cancel(item)
    const bucket = this.#bucketOf(Math.ceil(atMs / tickMs))
    item.bucket = bucket
    item.previous = bucket.last
    if (bucket.last === null) bucket.first = item
    else bucket.last.next = item
    bucket.last = item
  }

  cancel(item: Timed): void {
    const { bucket } = item
    if (bucket === null) return
    if (item.previous === null) bucket.first = item.next
    else item.previous.next = item.next
    if (item.next === null) bucket.last = item.previous
    else item.next.previous = item.previous
    item.bucket = item.previous = item.next = null
  }

  /** Fires everything that is due by the clock. */
  advance(): void {
    const nowMs = this.nowMs()
    while (this.#ticks.length > 0 && (this.#ticks[0] as number) * tickMs <= nowMs) {
      const tick = popTick(this.#ticks)
      const bucket = this.#buckets.get(tick)
      this.#buckets.delete(tick)
      if (tick === this.#lastTick) this.#lastBucket = null
      while (bucket !== undefined && bucket.first !== null) {
        const item = bucket.first
        this.cancel(item)
        item.due()
      }
    }
  }

  close(): void {
    this.#isClosed = true
    this.#wake?.abort()
  }

  #bucketOf(tick: number): Bucket {
    if (tick === this.#lastTick && this.#lastBucket !== null) return this.#lastBucket
    let bucket = this.#buckets.get(tick)
    if (bucket === undefined) {
      bucket = { first: null, last: null }
      this.#buckets.set(tick, bucket)
      pushTick(this.#ticks, tick)
      if (tick < this.#wakeTick) this.#sleepUntil(tick)
    }
    this.#lastTick = tick
    this.#lastBucket = bucket
    return bucket
  }

  #sleepUntil(tick: number): void {
    if (this.#isClosed) return
    this.#wake?.abort()
    const wake = new AbortController()
    this.#wake = wake
    this.#wakeTick = tick
    const delayMs = Math.max(0, tick * tickMs - this.nowMs())
    void this.#clock.sleep(delayMs, wake.signal).then(() => {
      if (wake.signal.aborted) return
      this.#wakeTick = Infinity
      this.#wake = null
      this.advance()
      const next = this.#ticks[0]
      if (next !== undefined && next < this.#wakeTick) this.#sleepUntil(next)
    })
  }
}

function pushTick(heap: number[], tick: number): void {
  let at = heap.push(tick) - 1
  while (at > 0) {
    const parent = (at - 1) >> 1
    if ((heap[parent] as number) <= tick) break
    heap[at] = heap[parent] as number
    at = parent
  }
  heap[at] = tick
}

function popTick(heap: number[]): number {
  const top = heap[0] as number
  const last = heap.pop() as number
  if (heap.length === 0) return top
  let at = 0
  for (;;) {
    let child = at * 2 + 1
    if (child >= heap.length) break
    if (child + 1 < heap.length && (heap[child + 1] as number) < (heap[child] as number)) child += 1
    if ((heap[child] as number) >= last) break
    heap[at] = heap[child] as number
    at = child
  }
  heap[at] = last
  return top
}
