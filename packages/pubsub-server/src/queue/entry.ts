/**
 * One message in one subscription.
 *
 *   ready ──take──▶ leased ──ack──▶ acked ──(front of its key)──▶ gone
 *     ▲               │               │
 *     └──back-off──waiting◀──nack, expiry, or that of an earlier message of its key
 */
import type { Message } from '../model/message.ts'
import { half } from '../protocol/digits.ts'
import type { OrderedKey } from './ordered-key.ts'
import type { Receiver } from './receiver.ts'
import type { Bucket, Timed } from './timer-wheel.ts'

/** `gone` entries may still lie in a ready queue, where they are passed over. */
export type EntryState = 'ready' | 'leased' | 'waiting' | 'acked' | 'gone'

export class Entry implements Timed {
  readonly message: Message
  readonly key: OrderedKey | null
  state: EntryState = 'ready'
  /** Negative acknowledgements and expiries of this very message. */
  failures = 0
  /** Which lease this is, and where it is kept: together the acknowledgement id. */
  nonce = 0
  slot = -1
  leasedTo: Receiver | null = null
  /** Its place in its key's list, counted from the key's first message ever. */
  place = 0

  bucket: Bucket | null = null
  previous: Timed | null = null
  next: Timed | null = null

  /** Links of the subscription's backlog, in publish order. */
  older: Entry | null = null
  newer: Entry | null = null

  readonly #onDue: (entry: Entry) => void

  constructor(message: Message, key: OrderedKey | null, onDue: (entry: Entry) => void) {
    this.message = message
    this.key = key
    this.#onDue = onDue
  }

  /** The number that stands in the acknowledgement id. */
  get leaseId(): number {
    return this.nonce * half + this.slot
  }

  due(): void {
    this.#onDue(this)
  }
}
