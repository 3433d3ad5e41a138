/**
 * One StreamingPull that is always there: opened again when it ends, replaced when it falls silent.
 *
 * A stream can die without a word, and then nothing arrives for ever. So we ask for signs of life, and after `silentMs`
 * without any the stream is replaced, on a new connection. Stopping ends our half of the stream and then reads what the
 * service has already sent: those messages are leased to us, and thrown away they would come again only after their lease.
 */
import { randomUUID } from 'node:crypto'
import { backoffMs } from '../../../core/service/backoff.ts'
import type { Clock } from '../../../core/service/clock.ts'
import { WaybillError } from '../../../core/errors.ts'
import type { Random } from '../../../core/service/random.ts'
import { unlessAborted } from '../../../core/service/abort.ts'
import { openedWithin, type Connection, type PullDuplex, type ReceivedMessage } from '../client/connection.ts'
import { isPermanent, pubsubError, status } from '../client/errors.ts'

export interface PullOptions {
  /** Opens a channel of its own. */
  readonly open: () => Promise<Connection>
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
  /** Messages came, or it was there for a while, or until we left it. */
  readonly wasOfUse: boolean
  /** The service ended it by itself, without an error. */
  readonly isClean?: boolean
  readonly error?: unknown
}

interface Watch {
  readonly over: AbortSignal
  readonly heardAtMs: () => number
  readonly leave: () => Promise<void>
}

const backoff = { firstMs: 100, maxMs: 10_000 }
/** How long the service may take to end its half of the stream after we ended ours. */
const farewellMs = 2_000
/** The service need not say that it accepted a stream; it does say that it did not, if it can be reached at all. */
const acceptedAfterMs = 3_000
/** Streams in a row that the service ended at once, without an error: from here on that is told. */
const toldCleanEnds = 5

export class PullLoop {
  readonly #options: PullOptions
  readonly #stopping = new AbortController()
  /** The same for every stream of this receiver: what the service knows of the old one it hands to the new one. */
  readonly #clientId = randomUUID()
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

  /** The connection of the stream, for the calls that belong to it. */
  async connection(signal: AbortSignal): Promise<Connection> {
    this.#connection ??= this.#newConnection()
    const connection = await unlessAborted(this.#connection, signal)
    if (connection !== undefined) return connection
    throw new WaybillError('ABORTED', 'Pub/Sub: given up before there was a connection.')
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
    let cleanEnds = 0
    const accepted = (): void => {
      isAccepted = true
      accept()
    }
    while (!stopping.aborted) {
      const { error, wasOfUse, isClean } = await this.#session(accepted)
      // The service ends streams now and then: of one that was of use, that is ordinary.
      if (wasOfUse) failures = 0
      cleanEnds = isClean === true && !wasOfUse ? cleanEnds + 1 : 0
      if (stopping.aborted || (error === undefined && cleanEnds === 0)) continue
      failures += 1
      const told = error === undefined ? endedAtOnce(subscription, cleanEnds) : pubsubError(error, `pull from ${subscription}`)
      if (!isAccepted && isPermanent(error)) return refuse(told)
      if (error !== undefined || cleanEnds >= toldCleanEnds) onError(told)
      await clock.sleep(backoffMs(backoff, failures, random), stopping)
    }
    accept()
  }

  /** One stream, from its opening to its end. Never rejects. */
  async #session(accepted: () => void): Promise<SessionEnd> {
    const { subscription, leaseMs, maxMessages, maxBytes } = this.#options
    const stopping = this.#stopping.signal
    let connection: Connection
    let stream: PullDuplex
    try {
      connection = await this.connection(stopping)
      if (stopping.aborted) return { wasOfUse: false }
      stream = connection.streamingPull({ subscription })
    } catch (error) {
      return { error, wasOfUse: false }
    }
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
    void this.#acceptInTime(connection, over.signal, accepted)
    return await ended
  }

  /** A service that is out of reach refuses nothing either: its silence counts only on a connection that it has answered. */
  async #acceptInTime(connection: Connection, over: AbortSignal, accepted: () => void): Promise<void> {
    do await this.#options.clock.sleep(acceptedAfterMs, over)
    while (!over.aborted && !connection.isConnected())
    if (!over.aborted) accepted()
  }

  #listen(stream: PullDuplex, over: AbortController, accepted: () => void): Promise<SessionEnd> {
    const { clock, onMessages } = this.#options
    const stopping = this.#stopping.signal
    const openedAtMs = clock.monotonicMs()
    let heardAtMs = openedAtMs
    let isAnswered = false
    let broughtMessages = false
    let isLeft = false
    let isExactlyOnce = false
    return new Promise((resolve) => {
      const end = (error?: unknown, isClean = false): void => {
        if (over.signal.aborted) return
        over.abort()
        stopping.removeEventListener('abort', stop)
        // The time of a stream that was never answered is that of a service out of reach.
        const wasThere = (isAnswered || isClean) && (isLeft || clock.monotonicMs() - openedAtMs >= backoff.maxMs)
        resolve({ error, wasOfUse: broughtMessages || wasThere, isClean })
      }
      const leave = (): Promise<void> => {
        isLeft = true
        return this.#leave(stream, over.signal)
      }
      const stop = (): void => void leave().then(() => end())
      const heard = (): void => {
        heardAtMs = clock.monotonicMs()
        isAnswered = true
        accepted()
      }
      stream.on('metadata', heard)
      stream.on('data', ({ receivedMessages, subscriptionProperties }) => {
        heard()
        isExactlyOnce = subscriptionProperties?.exactlyOnceDeliveryEnabled ?? isExactlyOnce
        // An empty one proves nothing: each stream begins with it, also if a proxy lets no more than that through.
        if (receivedMessages == null || receivedMessages.length === 0) return
        broughtMessages = true
        onMessages(receivedMessages, isExactlyOnce)
      })
      stream.on('error', (error) => end(error))
      stream.on('status', ({ code, details }) =>
        // To our farewell the service answers with an end, which is ours.
        code === status.ok ? end(undefined, !isLeft) : end(Object.assign(new Error(details), { code, details })),
      )
      stopping.addEventListener('abort', stop, { once: true })
      void this.#watch(stream, { over: over.signal, heardAtMs: () => heardAtMs, leave }).then((wasSilent) => wasSilent && stop())
    })
  }

  /** Ends with the stream, or when it is being left. True if it was silent for too long: then it and its connection are given up. */
  async #watch(stream: PullDuplex, { over, heardAtMs, leave }: Watch): Promise<boolean> {
    const { clock, silentMs } = this.#options
    for (;;) {
      await clock.sleep(silentMs / 3, over)
      // With our half ended, a write would destroy the stream, and what the service has already sent with it.
      if (over.aborted || this.#stopping.signal.aborted) return false
      if (clock.monotonicMs() - heardAtMs() >= silentMs) break
      // An empty request keeps the stream open, and asks the service for an answer.
      stream.write({})
    }
    const silent = this.#connection
    await leave()
    if (silent !== undefined) this.#forget(silent)
    return true
  }

  async #leave(stream: PullDuplex, over: AbortSignal): Promise<void> {
    if (over.aborted) return
    stream.end()
    await this.#options.clock.sleep(farewellMs, over)
    if (!over.aborted) stream.cancel()
  }

  /** Has one deadline for all who wait for it: nobody gets a connection that another has given up. */
  #newConnection(): Promise<Connection> {
    const opening = this.#options.open()
    const opened = openedWithin(opening, { timeoutMs: this.#options.callTimeoutMs })
    opened.catch(() => {
      this.#forget(opened)
      closeOnceOpen(opening)
    })
    return opened
  }

  #forget(connection: Promise<Connection>): void {
    if (this.#connection === connection) this.#connection = undefined
    closeOnceOpen(connection)
  }
}

function endedAtOnce(subscription: string, times: number): WaybillError {
  return new WaybillError(
    'UNAVAILABLE',
    `Pub/Sub, pull from ${subscription}: the service ended ${times} streams in a row as soon as they were open, without an error and before any message came.`,
  )
}

function closeOnceOpen(opening: Promise<Connection>): void {
  void opening.then((open) => open.close()).catch(() => {})
}
