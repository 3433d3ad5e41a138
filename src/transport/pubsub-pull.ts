/**
 * One StreamingPull that is always there: opened again when it ends, replaced when it falls silent.
 *
 * A stream can die without a word, and then nothing arrives for ever. So we ask for signs of life, and after `silentMs`
 * without any the stream is replaced, on a new connection. Stopping ends our half of the stream and then reads what the
 * service has already sent: those messages are leased to us, and thrown away they would come again only after their lease.
 */
import { randomUUID } from 'node:crypto'
import { backoffMs } from '../core/backoff.ts'
import type { Clock } from '../core/clock.ts'
import type { Random } from '../core/random.ts'
import {
  openConnection,
  openedWithin,
  type Connection,
  type PubsubConnectOptions,
  type PullDuplex,
  type ReceivedMessage,
} from './pubsub-client.ts'
import { isPermanent, pubsubError, status } from './pubsub-errors.ts'

export interface PullOptions {
  readonly connect: PubsubConnectOptions
  readonly subscription: string
  readonly leaseMs: number
  readonly maxMessages: number
  readonly maxBytes: number
  readonly silentMs: number
  readonly callTimeoutMs: number
  readonly clock: Clock
  readonly random: Random
  readonly onMessages: (messages: readonly ReceivedMessage[], isExactlyOnce: boolean) => void
  readonly onError: (error: Error) => void
}

interface SessionEnd {
  readonly wasHeard: boolean
  readonly error?: unknown
}

const backoff = { firstMs: 100, maxMs: 10_000 }
/** How long the service may take to end its half of the stream after we ended ours. */
const farewellMs = 2_000
/** The service need not say that it accepted a stream; it does say that it did not. */
const acceptedAfterMs = 3_000

export class PullLoop {
  readonly #options: PullOptions
  readonly #stopping = new AbortController()
  /** The same for every stream of this receiver: what the service knows of the old one it hands to the new one. */
  readonly #clientId = randomUUID()
  readonly #open = new WeakMap<Promise<Connection>, Connection>()
  #connection: Promise<Connection> | undefined
  #running: Promise<void> = Promise.resolve()

  constructor(options: PullOptions) {
    this.#options = options
  }

  /** Resolves when the stream was accepted; rejects when it cannot be until somebody changes something. */
  start(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#running = this.#run(resolve, reject)
    })
  }

  /** The connection of the stream, for the calls that belong to it. One that does not come in time is given up. */
  async connection(signal: AbortSignal): Promise<Connection> {
    const opening = (this.#connection ??= this.#newConnection())
    const open = this.#open.get(opening)
    if (open !== undefined) return open
    try {
      return await openedWithin(opening, { timeoutMs: this.#options.callTimeoutMs, signal })
    } catch (error) {
      // Who was told to stop waiting leaves it to the others who wait for it.
      if (!signal.aborted) this.#forget(opening)
      throw error
    }
  }

  /** Asks for no more; resolves when everything that was sent has been handed on. */
  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#running
  }

  /** After `stop`, when no call needs the connection any more. */
  disconnect(): void {
    if (this.#connection !== undefined) this.#forget(this.#connection)
  }

  async #run(accept: () => void, refuse: (error: Error) => void): Promise<void> {
    const { clock, random, onError, subscription } = this.#options
    const stopping = this.#stopping.signal
    let isAccepted = false
    let failures = 0
    const accepted = (): void => {
      isAccepted = true
      accept()
    }
    while (!stopping.aborted) {
      const { error, wasHeard } = await this.#session(accepted)
      if (wasHeard) failures = 0
      if (error === undefined || stopping.aborted) continue
      failures += 1
      const told = pubsubError(error, `pull from ${subscription}`)
      if (!isAccepted && isPermanent(error)) return refuse(told)
      onError(told)
      await clock.sleep(backoffMs(backoff, failures, random), stopping)
    }
    accept()
  }

  /** One stream, from its opening to its end. Never rejects. */
  async #session(accepted: () => void): Promise<SessionEnd> {
    const { subscription, leaseMs, maxMessages, maxBytes, clock } = this.#options
    let connection: Connection
    try {
      connection = await this.connection(this.#stopping.signal)
    } catch (error) {
      return { error, wasHeard: false }
    }
    const stream = connection.streamingPull({ subscription })
    const over = new AbortController()
    const ended = this.#listen(stream, over, accepted)
    stream.write({
      subscription,
      streamAckDeadlineSeconds: Math.round(leaseMs / 1000),
      maxOutstandingMessages: maxMessages,
      maxOutstandingBytes: maxBytes,
      clientId: this.#clientId,
      // With it the service answers our signs of life with its own.
      protocolVersion: 1,
    })
    void clock.sleep(acceptedAfterMs, over.signal).then(() => over.signal.aborted || accepted())
    return await ended
  }

  #listen(stream: PullDuplex, over: AbortController, accepted: () => void): Promise<SessionEnd> {
    const { clock, onMessages } = this.#options
    const stopping = this.#stopping.signal
    let heardAtMs = clock.monotonicMs()
    let wasHeard = false
    let isExactlyOnce = false
    return new Promise((resolve) => {
      const end = (error?: unknown): void => {
        if (over.signal.aborted) return
        over.abort()
        stopping.removeEventListener('abort', leave)
        resolve({ error, wasHeard })
      }
      const leave = (): void => void this.#leave(stream, over.signal).then(() => end())
      const heard = (): void => {
        heardAtMs = clock.monotonicMs()
        accepted()
      }
      stream.on('metadata', heard)
      stream.on('data', ({ receivedMessages, subscriptionProperties }) => {
        heard()
        wasHeard = true
        isExactlyOnce = subscriptionProperties?.exactlyOnceDeliveryEnabled ?? isExactlyOnce
        if (receivedMessages != null && receivedMessages.length > 0) onMessages(receivedMessages, isExactlyOnce)
      })
      stream.on('error', end)
      stream.on('status', ({ code, details }) =>
        end(code === status.ok ? undefined : Object.assign(new Error(details), { code, details })),
      )
      if (stopping.aborted) leave()
      else stopping.addEventListener('abort', leave, { once: true })
      void this.#watch(stream, over.signal, () => heardAtMs).then(leave)
    })
  }

  /** Returns when the stream has been silent for too long, is over, or is being left. */
  async #watch(stream: PullDuplex, over: AbortSignal, heardAtMs: () => number): Promise<void> {
    const { clock, silentMs } = this.#options
    for (;;) {
      await clock.sleep(silentMs / 3, over)
      // With our half ended, a write would destroy the stream, and what the service has already sent with it.
      if (over.aborted || this.#stopping.signal.aborted) return
      if (clock.monotonicMs() - heardAtMs() >= silentMs) break
      // An empty request keeps the stream open, and asks the service for an answer.
      stream.write({})
    }
    const silent = this.#connection
    await this.#leave(stream, over)
    if (silent !== undefined) this.#forget(silent)
  }

  async #leave(stream: PullDuplex, over: AbortSignal): Promise<void> {
    if (over.aborted) return
    stream.end()
    await this.#options.clock.sleep(farewellMs, over)
    if (!over.aborted) stream.cancel()
  }

  #newConnection(): Promise<Connection> {
    const opening = openConnection('Subscriber', this.#options.connect)
    opening.then(
      (open) => this.#open.set(opening, open),
      () => this.#forget(opening),
    )
    return opening
  }

  #forget(connection: Promise<Connection>): void {
    if (this.#connection === connection) this.#connection = undefined
    void connection.then((open) => open.close()).catch(() => {})
  }
}
