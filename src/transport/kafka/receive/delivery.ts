/**
 * One delivery of Kafka: a record in the hand of its consumer, for as long as its partition is ours.
 */
import type { Acker, AckOutcome, Delivery, IncomingMessage } from '../../port/transport.ts'
import type { PartitionWindow, WindowEntry } from './partition-window.ts'

/** What a delivery asks of the reading that handed it out. */
export interface DeliveryOwner extends Acker {
  nack(delivery: KafkaDelivery, delayMs: number): void
  stall(delivery: KafkaDelivery): void
}

export class KafkaDelivery implements Delivery {
  readonly window: PartitionWindow
  readonly entry: WindowEntry
  state: 'in-hand' | 'acked' | 'over' = 'in-hand'
  readonly #owner: DeliveryOwner
  #isLost = false
  #lost: AbortController | undefined

  constructor(owner: DeliveryOwner, { window, entry }: { readonly window: PartitionWindow; readonly entry: WindowEntry }) {
    this.window = window
    this.entry = entry
    this.#owner = owner
  }

  get message(): IncomingMessage {
    return this.entry.message
  }

  get acker(): Acker {
    return this.#owner
  }

  async ack(): Promise<AckOutcome> {
    const [outcome] = await this.#owner.ackAll([this])
    return outcome ?? 'lost'
  }

  nack(delayMs = 0): Promise<void> {
    if (this.state === 'in-hand') this.#owner.nack(this, delayMs)
    return Promise.resolve()
  }

  stall(): void {
    if (this.state === 'in-hand') this.#owner.stall(this)
  }

  get lost(): AbortSignal {
    this.#lost ??= new AbortController()
    if (this.#isLost) this.#lost.abort()
    return this.#lost.signal
  }

  /** Tells the handler that it works in vain. */
  lose(): void {
    this.state = 'over'
    this.#isLost = true
    this.#lost?.abort()
  }
}
