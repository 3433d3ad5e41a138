/**
 * A receiver takes messages from a subscription: a stream, or one Pull call.
 *
 * It counts what it holds, which is what flow control bounds, and keeps the ordering keys that go on to it
 * alone until everything it holds of them is settled.
 */
import { Deque } from './deque.ts'
import type { OrderedKey } from './ordered-key.ts'

export class Receiver {
  /** A Pull call takes one batch of a key; a stream may be sent more of it. */
  readonly isStream: boolean
  readonly keys: Deque<OrderedKey> = new Deque()
  isOpen = true
  leaseMs: number
  /** Zero means no bound. */
  maxMessages = 0
  maxBytes = 0
  heldMessages = 0
  heldBytes = 0
  /** It was offered more than fitted: tell the subscription when there is room again. */
  isBlocked = false

  constructor(isStream: boolean, leaseMs: number) {
    this.isStream = isStream
    this.leaseMs = leaseMs
  }

  hasRoom(): boolean {
    return (
      (this.maxMessages === 0 || this.heldMessages < this.maxMessages) && (this.maxBytes === 0 || this.heldBytes < this.maxBytes)
    )
  }

  /** A message larger than all its room goes to it alone. */
  fits(bytes: number): boolean {
    return this.hasRoom() && (this.maxBytes === 0 || this.heldMessages === 0 || this.heldBytes + bytes <= this.maxBytes)
  }
}
