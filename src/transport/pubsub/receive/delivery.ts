/**
 * One delivery of Pub/Sub on its way through a receiver.
 *
 *   waiting ──handed over──▶ in-hand ──ack──▶ acked
 *      │                        │──nack──▶ held ──given back──▶ over
 *      └──a predecessor nacked──┴─────────▶ held (lost to its handler)
 *   any ──lease ended──▶ over (lost to its handler)
 */
import { messageBytes } from '../../port/publish-runs.ts'
import { fromCloudEvent } from '../client/attributes.ts'
import type { ReceivedMessage } from '../client/connection.ts'
import type { AckOutcome, Delivery, IncomingMessage } from '../../port/transport.ts'

export type DeliveryState = 'waiting' | 'in-hand' | 'acked' | 'held' | 'over'

/** What a delivery asks of the receiver that handed it out. */
export interface DeliveryOwner {
  ack(delivery: PubsubDelivery): Promise<AckOutcome>
  nack(delivery: PubsubDelivery, delayMs: number): Promise<void>
}

export class PubsubDelivery implements Delivery {
  readonly message: IncomingMessage
  readonly ackId: string
  readonly bytes: number
  readonly receivedAtMs: number
  leaseUntilMs: number
  state: DeliveryState = 'waiting'
  readonly #owner: DeliveryOwner
  #isLost = false
  #lost: AbortController | undefined

  constructor(
    received: ReceivedMessage,
    owner: DeliveryOwner,
    { topic, nowMs, leaseMs }: { topic: string; nowMs: number; leaseMs: number },
  ) {
    this.message = toMessage(received, topic)
    this.ackId = received.ackId
    this.bytes = messageBytes(this.message)
    this.receivedAtMs = nowMs
    this.leaseUntilMs = nowMs + leaseMs
    this.#owner = owner
  }

  ack(): Promise<AckOutcome> {
    return this.#owner.ack(this)
  }

  nack(delayMs = 0): Promise<void> {
    return this.#owner.nack(this, delayMs)
  }

  get lost(): AbortSignal {
    this.#lost ??= new AbortController()
    if (this.#isLost) this.#lost.abort()
    return this.#lost.signal
  }

  /** Tells the handler that it works in vain. */
  lose(): void {
    this.#isLost = true
    this.#lost?.abort()
  }
}

function toMessage({ message, deliveryAttempt }: ReceivedMessage, topic: string): IncomingMessage {
  const { seconds, nanos } = message.publishTime ?? { seconds: 0, nanos: 0 }
  return {
    messageId: message.messageId,
    topic,
    orderingKey: message.orderingKey === '' ? undefined : message.orderingKey,
    attributes: fromCloudEvent(message.attributes),
    body: message.data,
    publishedAtMs: Number(seconds) * 1000 + Math.floor(nanos / 1_000_000),
    deliveryAttempt: deliveryAttempt > 0 ? deliveryAttempt : undefined,
  }
}
