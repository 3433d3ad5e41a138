/**
 * Hands the ready messages of one subscription to those who wait for them.
 *
 * Waiting Pull calls are served first, then the streams in turn, a chunk each, as long as a stream takes more and
 * has room. Work is gathered until the loop has read what came in, so chunks fill up under load and a single
 * message goes out at once when idle.
 */
import type { RpcError } from '../model/rpc-error.ts'
import type { Entry } from './entry.ts'
import type { Receiver } from './receiver.ts'
import type { SubscriptionQueue } from './subscription-queue.ts'

/** A stream that messages are sent to. */
export interface Sink {
  readonly receiver: Receiver
  /** False while the network is behind; `Dispatcher.schedule` follows when it has caught up. */
  isWritable(): boolean
  send(entries: readonly Entry[]): void
  /** Ends the stream with a status. */
  end(error: RpcError): void
}

interface Waiter {
  readonly receiver: Receiver
  readonly maxMessages: number
  readonly resolve: (entries: readonly Entry[]) => void
}

const chunk = { messages: 1_000, bytes: 64 * 1024 }
const pullBytes = 10_000_000

export class Dispatcher {
  readonly #queue: SubscriptionQueue
  readonly #waiters = new Set<Waiter>()
  #sinks: Sink[] = []
  #isScheduled = false

  constructor(queue: SubscriptionQueue) {
    this.#queue = queue
  }

  get sinks(): readonly Sink[] {
    return this.#sinks
  }

  attach(sink: Sink): void {
    this.#sinks.push(sink)
    this.schedule()
  }

  detach(sink: Sink): void {
    this.#sinks = this.#sinks.filter((other) => other !== sink)
    this.#queue.detach(sink.receiver)
  }

  /** Messages now, or when there are some, or none when `signal` aborts. */
  pull(receiver: Receiver, maxMessages: number, signal: AbortSignal | null): Promise<readonly Entry[]> | readonly Entry[] {
    const entries = this.#queue.take(receiver, { messages: maxMessages, bytes: pullBytes })
    if (entries.length > 0 || signal === null || signal.aborted) return entries
    return new Promise((resolve) => {
      const waiter: Waiter = {
        receiver,
        maxMessages,
        resolve: (taken) => {
          this.#waiters.delete(waiter)
          resolve(taken)
        },
      }
      this.#waiters.add(waiter)
      signal.addEventListener('abort', () => waiter.resolve([]), { once: true })
    })
  }

  schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(this.#run)
  }

  readonly #run = (): void => {
    this.#isScheduled = false
    for (const waiter of this.#waiters) {
      const entries = this.#queue.take(waiter.receiver, { messages: waiter.maxMessages, bytes: pullBytes })
      if (entries.length === 0) break
      waiter.resolve(entries)
    }
    let hasProgress = this.#sinks.length > 0
    while (hasProgress) {
      hasProgress = false
      for (const sink of this.#sinks) {
        if (!sink.isWritable() || !sink.receiver.hasRoom()) continue
        const entries = this.#queue.take(sink.receiver, chunk)
        if (entries.length === 0) continue
        sink.send(entries)
        hasProgress = true
      }
    }
    // The stream that was first is last next time, so a trickle of messages is spread over all of them.
    const first = this.#sinks.shift()
    if (first !== undefined) this.#sinks.push(first)
  }
}
