/**
 * One StreamingPull: deliveries go out as room allows, acknowledgements and new deadlines come in.
 *
 * When a stream ends, its leases run on: a client may acknowledge through another call, and what it does not comes
 * back when its lease ends. With exactly-once delivery every acknowledgement sent here is confirmed here, after it
 * is durable.
 */
import type { ServerDuplexStream } from '@grpc/grpc-js'
import type { Subscription } from '../broker/topic.ts'
import { invalid, RpcError } from '../model/rpc-error.ts'
import { checkAttached } from '../operations/subscriptions.ts'
import type { Codec } from '../protocol/protocol.ts'
import { encodeDeliveries } from '../protocol/subscriber-codec.ts'
import type { StreamingPullRequest } from '../protocol/subscriber-codec.ts'
import type { Sink } from '../queue/dispatcher.ts'
import type { Entry } from '../queue/entry.ts'
import { Receiver } from '../queue/receiver.ts'
import { acknowledge, checkDeadline, modifyDeadlines } from './acknowledging.ts'
import type { AckOutcomes } from './acknowledging.ts'
import { refuse } from './call.ts'
import type { CallContext } from './call.ts'

export type PullStream = ServerDuplexStream<StreamingPullRequest, Buffer>

export function streamingPull(context: CallContext, responseCodec: Codec): (stream: PullStream) => void {
  return (stream) => {
    let session: StreamSession | undefined
    const end = (error: unknown): void => {
      session?.close()
      stream.emit('error', Object.assign(new Error('stream ended'), context.toStatus(error)))
    }
    stream.on('data', (request: StreamingPullRequest) => {
      try {
        if (session !== undefined) return session.receive(request)
        refuse(context.broker.faults)
        session = new StreamSession({ context, stream, responseCodec, request, end })
      } catch (error) {
        end(error)
      }
    })
    stream.on('end', () => {
      session?.close()
      stream.end()
    })
    stream.on('cancelled', () => session?.close())
    stream.on('error', () => session?.close())
  }
}

interface SessionParts {
  readonly context: CallContext
  readonly stream: PullStream
  readonly responseCodec: Codec
  readonly request: StreamingPullRequest
  readonly end: (error: unknown) => void
}

class StreamSession implements Sink {
  readonly receiver: Receiver
  readonly #parts: SessionParts
  readonly #subscription: Subscription
  #isBehind = false
  #isClosed = false

  constructor(parts: SessionParts) {
    const { context, request, stream } = parts
    this.#parts = parts
    this.#subscription = context.broker.subscription(request.subscription)
    checkAttached(this.#subscription)
    if (request.streamAckDeadlineSeconds < 10 || request.streamAckDeadlineSeconds > 600) {
      throw invalid(`Invalid stream_ack_deadline_seconds: ${request.streamAckDeadlineSeconds}. It must be from 10 to 600.`)
    }
    this.receiver = new Receiver(true, request.streamAckDeadlineSeconds * 1000)
    this.receiver.maxMessages = Math.max(0, request.maxOutstandingMessages)
    this.receiver.maxBytes = Math.max(0, request.maxOutstandingBytes)
    stream.on('drain', () => {
      this.#isBehind = false
      this.#subscription.dispatcher.schedule()
    })
    this.#settle(request)
    // Says that the stream was accepted, before there is a message to say it.
    this.#write(this.#properties())
    this.#subscription.dispatcher.attach(this)
  }

  /** A request after the first: acknowledgements, deadlines, a new stream deadline, or nothing (a sign of life). */
  receive(request: StreamingPullRequest): void {
    if (this.#isClosed) return
    if (request.subscription !== '') throw invalid('Only the first request of a stream may name a subscription.')
    if (request.streamAckDeadlineSeconds !== 0) {
      checkDeadline(request.streamAckDeadlineSeconds)
      this.receiver.leaseMs = Math.max(10, request.streamAckDeadlineSeconds) * 1000
    }
    this.#settle(request)
  }

  isWritable(): boolean {
    return !this.#isBehind && !this.#isClosed
  }

  send(entries: readonly Entry[]): void {
    const { faults } = this.#parts.context.broker
    const { policy } = this.#subscription.queue
    const sent = policy.isExactlyOnce || !faults.isOn ? entries : withDuplicates(entries, () => faults.strikes('duplicate'))
    this.#write(encodeDeliveries(sent, policy.maxDeliveryAttempts > 0, this.#properties()))
    if (faults.strikes('cutStreams')) this.end(new RpcError('UNAVAILABLE', 'Fault: the stream was cut.'))
  }

  end(error: RpcError): void {
    if (!this.#isClosed) this.#parts.end(error)
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#subscription.dispatcher.detach(this)
  }

  #settle(request: StreamingPullRequest): void {
    const { broker } = this.#parts.context
    const { acks, modifyAcks, modifySeconds } = request
    if (modifySeconds.length !== modifyAcks.leaseIds.length) {
      throw invalid('modify_deadline_seconds and modify_deadline_ack_ids must have the same number of elements.')
    }
    modifySeconds.forEach(checkDeadline)
    const acked = acknowledge(this.#subscription, acks, broker.faults)
    const modified = modifyDeadlines(this.#subscription, modifyAcks, (index) => modifySeconds[index] ?? 0)
    if (acks.leaseIds.length + modifyAcks.leaseIds.length === 0) return
    const { isExactlyOnce } = this.#subscription.queue.policy
    const confirm = (): void => (isExactlyOnce ? this.#confirm(acked, modified) : undefined)
    const flushed = broker.journal.flushed()
    if (flushed === undefined) confirm()
    else void flushed.then(confirm, (error: unknown) => this.#parts.end(error))
  }

  #confirm(acked: AckOutcomes, modified: AckOutcomes): void {
    if (this.#isClosed) return
    const response = {
      acknowledgeConfirmation: {
        ackIds: acked.done,
        invalidAckIds: acked.invalid,
        unorderedAckIds: acked.unordered,
        temporaryFailedAckIds: acked.transient,
      },
      modifyAckDeadlineConfirmation: { ackIds: modified.done, invalidAckIds: modified.invalid, temporaryFailedAckIds: [] },
    }
    this.#write(Buffer.concat([this.#properties(), this.#parts.responseCodec.encode(response)]))
  }

  #write(bytes: Buffer): void {
    if (!this.#parts.stream.write(bytes)) this.#isBehind = true
  }

  #properties(): Buffer {
    const { isExactlyOnce, isOrdered } = this.#subscription.queue.policy
    return subscriptionProperties[isExactlyOnce ? 1 : 0][isOrdered ? 1 : 0]
  }
}

/** The encoded subscription_properties: exactly-once first, ordering second. */
const subscriptionProperties = [
  [Buffer.from([0x22, 0]), Buffer.from([0x22, 2, 0x10, 1])],
  [Buffer.from([0x22, 2, 0x08, 1]), Buffer.from([0x22, 4, 0x08, 1, 0x10, 1])],
] as const

function withDuplicates(entries: readonly Entry[], strikes: () => boolean): readonly Entry[] {
  return entries.flatMap((entry) => (strikes() ? [entry, entry] : [entry]))
}
