/**
 * The messages a subscription still owes, and to whom each is leased.
 *
 * Guarantee: a message stays until it is acknowledged, dead-lettered or past its retention; a lease that ends
 * without an acknowledgement brings it back. Of an ordering key, everything unsettled is with one receiver, in
 * publish order, and what comes back brings all its successors back. No operation looks at more than it changes.
 */
import type { Message } from '../model/message.ts'
import { redeliveryDelayMs } from './delivery-policy.ts'
import type { DeliveryPolicy } from './delivery-policy.ts'
import { Deque } from './deque.ts'
import { Entry } from './entry.ts'
import { LeaseTable } from './lease-table.ts'
import { OrderedKey } from './ordered-key.ts'
import type { Receiver } from './receiver.ts'
import type { TimerWheel } from './timer-wheel.ts'

export type AckOutcome = 'done' | 'invalid' | 'unordered'

export interface QueueHost {
  readonly timers: TimerWheel
  /** A number below a hundred million that no lease of the server has had for as many leases. */
  newNonce(): number
  /** There may be something to take. */
  onReady(): void
  /** The message is settled and will not be delivered again. */
  onSettled(message: Message): void
  /** Moves the message to the dead-letter topic; false leaves it here. */
  deadLetter(entry: Entry): boolean
  /** Which of the `count` first ready items goes next; 0 keeps the order. */
  pick(count: number): number
}

export class SubscriptionQueue {
  policy: DeliveryPolicy
  unackedMessages = 0
  unackedBytes = 0
  readonly #host: QueueHost
  readonly #ready = new Deque<Entry | OrderedKey>()
  readonly #keys = new Map<string, OrderedKey>()
  readonly #leases = new LeaseTable()
  #oldest: Entry | null = null
  #newest: Entry | null = null

  constructor(policy: DeliveryPolicy, host: QueueHost) {
    this.policy = policy
    this.#host = host
  }

  get leasedMessages(): number {
    return this.#leases.size
  }

  get orderedKeys(): number {
    return this.#keys.size
  }

  add(message: Message, delayMs = 0): void {
    const key = this.policy.isOrdered && message.orderingKey !== '' ? this.#keyOf(message.orderingKey) : null
    const entry = new Entry(message, key, this.#onEntryDue)
    this.#link(entry)
    this.unackedMessages += 1
    this.unackedBytes += message.byteLength
    if (key === null) return this.#makeReady(entry, delayMs)
    key.add(entry)
    if (delayMs > 0) this.#hold(key, delayMs)
    else this.#enqueue(key)
  }

  /** Leases ready messages to `receiver`, within its room and the bounds of one response. */
  take(receiver: Receiver, bounds: { readonly messages: number; readonly bytes: number }): Entry[] {
    const taken: Entry[] = []
    let bytes = 0
    const untilMs = this.#host.timers.nowMs() + receiver.leaseMs
    const fits = ({ message }: Entry): boolean =>
      taken.length < bounds.messages && bytes < bounds.bytes && receiver.fits(message.byteLength)
    const lease = (entry: Entry): void => {
      this.#lease(entry, receiver, untilMs)
      taken.push(entry)
      bytes += entry.message.byteLength
    }
    let isFull = !receiver.hasRoom()
    while (!isFull) {
      const item = this.#nextReady(receiver)
      if (item === undefined) break
      if (item instanceof Entry) {
        isFull = !fits(item)
        if (isFull) this.#ready.unshift(item)
        else lease(item)
        continue
      }
      item.owner = receiver
      for (let entry = item.peek(); entry !== undefined && fits(entry); entry = item.peek()) {
        item.advance()
        item.leased += 1
        lease(entry)
      }
      isFull = item.hasUnsent
      this.#release(item)
    }
    receiver.isBlocked = isFull
    return taken
  }

  ack(leaseId: number): AckOutcome {
    const entry = this.#leases.find(leaseId)
    const { isExactlyOnce } = this.policy
    if (entry === undefined) return isExactlyOnce && this.#leases.wasAcked(leaseId) ? 'done' : 'invalid'
    const { key } = entry
    if (key !== null && isExactlyOnce && !key.isFront(entry)) return 'unordered'
    if (isExactlyOnce) this.#leases.rememberAck(leaseId)
    this.#endLease(entry)
    entry.state = 'acked'
    if (key === null) {
      this.#settle(entry)
      return 'done'
    }
    for (const settled of key.settleFront()) this.#settle(settled)
    this.#release(key)
    return 'done'
  }

  /** Sets the lease to end in `seconds` from now; zero gives the message back. */
  modify(leaseId: number, seconds: number): AckOutcome {
    const entry = this.#leases.find(leaseId)
    if (entry === undefined) return 'invalid'
    if (seconds === 0) this.#fail(entry)
    else this.#host.timers.set(entry, seconds * 1000)
    return 'done'
  }

  /** A receiver has gone. Its leases run on; its keys go to others once everything it holds of them is settled. */
  detach(receiver: Receiver): void {
    receiver.isOpen = false
    for (let key = receiver.keys.shift(); key !== undefined; key = receiver.keys.shift()) {
      if (key.queuedIn !== receiver.keys) continue
      key.queuedIn = null
      this.#release(key)
    }
  }

  /** Drops what is older than the retention, acknowledged or not. */
  dropExpired(nowMs: number): void {
    for (let entry = this.#oldest; entry !== null; entry = this.#oldest) {
      if (entry.message.publishMs + this.policy.retentionMs > nowMs) return
      this.#remove(entry)
    }
  }

  /** Forgets acknowledged messages that were kept for a seek. */
  dropAcked(): void {
    for (let entry = this.#oldest; entry !== null;) {
      const { newer } = entry
      if (entry.state === 'gone') this.#unlink(entry)
      entry = newer
    }
  }

  /** Everything held, oldest first; acknowledged messages too while they are retained. */
  *retained(): Generator<{ readonly message: Message; readonly isAcked: boolean }> {
    for (let entry = this.#oldest; entry !== null; entry = entry.newer) {
      yield { message: entry.message, isAcked: entry.state === 'gone' }
    }
  }

  /** Forgets every lease and starts again from `messages`, which must be in publish order. */
  reset(messages: Iterable<{ readonly message: Message; readonly isAcked: boolean }>): void {
    const next = [...messages]
    for (const entry of this.#leases.entries()) this.#endLease(entry)
    for (let entry = this.#oldest; entry !== null; entry = entry.newer) {
      this.#host.timers.cancel(entry)
      entry.state = 'gone'
    }
    for (const key of this.#keys.values()) {
      this.#host.timers.cancel(key)
      key.queuedIn = null
    }
    this.#keys.clear()
    this.#ready.clear()
    this.#oldest = this.#newest = null
    this.unackedMessages = this.unackedBytes = 0
    for (const { message, isAcked } of next) {
      if (!isAcked) this.add(message)
      else if (this.policy.retainsAcked) this.#keepAcked(message)
    }
  }

  #nextReady(receiver: Receiver): Entry | OrderedKey | undefined {
    for (;;) {
      const queue = receiver.keys.length > 0 ? receiver.keys : this.#ready
      if (queue === this.#ready) this.#ready.swapFront(this.#host.pick(this.#ready.length))
      const item = queue.shift()
      if (item === undefined) return undefined
      if (item instanceof Entry) {
        if (item.state === 'ready') return item
      } else if (item.queuedIn === queue) {
        item.queuedIn = null
        return item
      }
    }
  }

  #lease(entry: Entry, receiver: Receiver, untilMs: number): void {
    entry.state = 'leased'
    this.#leases.add(entry, this.#host.newNonce())
    entry.leasedTo = receiver
    receiver.heldMessages += 1
    receiver.heldBytes += entry.message.byteLength
    this.#host.timers.setAt(entry, untilMs)
  }

  #endLease(entry: Entry): void {
    const receiver = entry.leasedTo
    this.#leases.remove(entry)
    this.#host.timers.cancel(entry)
    entry.leasedTo = null
    if (entry.key !== null) entry.key.leased -= 1
    if (receiver === null) return
    receiver.heldMessages -= 1
    receiver.heldBytes -= entry.message.byteLength
    if (!receiver.isBlocked || !receiver.isOpen) return
    receiver.isBlocked = false
    this.#host.onReady()
  }

  /** A negative acknowledgement or the end of a lease. */
  #fail(entry: Entry): void {
    const { key } = entry
    entry.failures += 1
    if (key === null) this.#endLease(entry)
    else {
      for (const returned of key.rewind(entry)) {
        if (returned.state === 'leased') this.#endLease(returned)
        if (returned.state !== 'gone') returned.state = 'ready'
      }
    }
    const { maxDeliveryAttempts } = this.policy
    if (maxDeliveryAttempts > 0 && entry.failures >= maxDeliveryAttempts && this.#host.deadLetter(entry)) {
      return this.#remove(entry)
    }
    const delayMs = redeliveryDelayMs(this.policy, entry.failures)
    if (key === null) return this.#makeReady(entry, delayMs)
    if (delayMs > 0) this.#hold(key, delayMs)
    this.#release(key)
  }

  #makeReady(entry: Entry, delayMs: number): void {
    if (delayMs > 0) {
      entry.state = 'waiting'
      this.#host.timers.set(entry, delayMs)
      return
    }
    entry.state = 'ready'
    this.#ready.push(entry)
    this.#host.onReady()
  }

  #hold(key: OrderedKey, delayMs: number): void {
    key.isWaiting = true
    key.queuedIn = null
    this.#host.timers.set(key, delayMs)
  }

  /** Puts a key where its next receiver will find it, or forgets it when it is empty. */
  #release(key: OrderedKey): void {
    if (key.leased === 0) {
      key.owner = null
      if (key.isEmpty) {
        this.#host.timers.cancel(key)
        if (this.#keys.get(key.name) === key) this.#keys.delete(key.name)
        return
      }
    }
    this.#enqueue(key)
  }

  #enqueue(key: OrderedKey): void {
    if (key.isWaiting || !key.hasUnsent) return
    const { owner } = key
    const queue = owner === null ? this.#ready : owner.isOpen && owner.isStream ? owner.keys : null
    if (queue === null || key.queuedIn === queue) return
    key.queuedIn = queue
    queue.push(key)
    this.#host.onReady()
  }

  readonly #onEntryDue = (entry: Entry): void => {
    if (entry.state === 'leased') this.#fail(entry)
    else if (entry.state === 'waiting') this.#makeReady(entry, 0)
  }

  readonly #onKeyDue = (key: OrderedKey): void => {
    key.isWaiting = false
    this.#enqueue(key)
  }

  #keyOf(name: string): OrderedKey {
    let key = this.#keys.get(name)
    if (key === undefined) {
      key = new OrderedKey(name, this.#onKeyDue)
      this.#keys.set(name, key)
    }
    return key
  }

  #settle(entry: Entry): void {
    entry.state = 'gone'
    this.unackedMessages -= 1
    this.unackedBytes -= entry.message.byteLength
    if (!this.policy.retainsAcked) this.#unlink(entry)
    this.#host.onSettled(entry.message)
  }

  #remove(entry: Entry): void {
    this.#unlink(entry)
    if (entry.state === 'gone') return
    if (entry.state === 'leased') this.#endLease(entry)
    this.#host.timers.cancel(entry)
    entry.state = 'gone'
    this.unackedMessages -= 1
    this.unackedBytes -= entry.message.byteLength
    this.#host.onSettled(entry.message)
    if (entry.key === null) return
    for (const settled of entry.key.settleFront()) this.#settle(settled)
    this.#release(entry.key)
  }

  #keepAcked(message: Message): void {
    const entry = new Entry(message, null, this.#onEntryDue)
    entry.state = 'gone'
    this.#link(entry)
  }

  #link(entry: Entry): void {
    entry.older = this.#newest
    if (this.#newest === null) this.#oldest = entry
    else this.#newest.newer = entry
    this.#newest = entry
  }

  #unlink(entry: Entry): void {
    if (entry.older === null) {
      if (this.#oldest === entry) this.#oldest = entry.newer
    } else entry.older.newer = entry.newer
    if (entry.newer === null) {
      if (this.#newest === entry) this.#newest = entry.older
    } else entry.newer.older = entry.older
    entry.older = entry.newer = null
  }
}
