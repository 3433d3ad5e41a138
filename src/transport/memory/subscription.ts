/**
 * One consumer's view of a topic in memory: what waits, who has what in hand, and what comes again.
 *
 * Messages of one key wait in one lane. While a receiver has one of them in hand the lane is its own, so that order holds
 * between receivers too. A nack takes back what the receiver got after it under that key, and the lane rests meanwhile.
 *
 *   waiting ──deliver──▶ in hand ──ack──▶ gone
 *      ▲                    │
 *      └──nack, abandoned───┘
 */
import type { Clock } from '../../core/service/clock.ts'
import { Fifo } from '../../core/queue.ts'
import { Held, MemoryReceiver, type Entry, type Lane, type Settling, type StoredMessage } from './receiver.ts'
import type { Dice } from './faults.ts'
import type { AckOutcome, IncomingMessage, ReceiveOptions, Receiver } from '../port/transport.ts'

export interface SubscriptionDeps {
  readonly clock: Clock
  readonly dice: Dice
  readonly onDelivered: (message: IncomingMessage) => void
}

/** A busy subscription lets other work in after this many deliveries. */
const deliveriesPerTask = 1_000

export class MemorySubscription implements Settling {
  readonly #deps: SubscriptionDeps
  readonly #lanes = new Map<string, Lane>()
  readonly #ready = new Fifo<Lane>()
  readonly #receivers: MemoryReceiver[] = []
  readonly #unsettled = new Set<StoredMessage>()
  readonly #closed = new AbortController()
  #life = 0
  #scheduled = false
  #turn = 0

  constructor(deps: SubscriptionDeps) {
    this.#deps = deps
  }

  add(stored: StoredMessage): void {
    const lane = this.#laneOf(stored.orderingKey)
    this.#unsettled.add(stored)
    lane.waiting.push({ stored, attempts: 0 })
    this.#offer(lane)
  }

  /** What waits or is in hand. */
  unsettled(): Iterable<StoredMessage> {
    return this.#unsettled
  }

  /** Forgets everything, what is in hand included, and starts over with `messages`. */
  reset(messages: readonly StoredMessage[]): void {
    this.#life += 1
    for (const receiver of this.#receivers) {
      receiver.own.clear()
      for (const held of receiver.held()) this.#release(held, 'lost')
    }
    this.#lanes.clear()
    this.#ready.clear()
    this.#unsettled.clear()
    for (const message of messages) this.add(message)
  }

  receive(options: ReceiveOptions): Receiver {
    const receiver = new MemoryReceiver(options)
    this.#receivers.push(receiver)
    this.#schedule()
    return {
      close: async (aborting) => {
        receiver.open = false
        await receiver.drained(aborting)
        this.#disconnect(receiver)
      },
    }
  }

  /** Ends all receivers now; what they have in hand is lost to them. Nobody comes after that, so nothing rests any more. */
  closeAll(): void {
    this.#closed.abort()
    for (let receiver = this.#receivers[0]; receiver !== undefined; receiver = this.#receivers[0]) this.#disconnect(receiver)
  }

  ack(held: Held): AckOutcome {
    if (held.state !== 'in-hand') return held.state === 'acked' ? 'confirmed' : 'lost'
    const { lane, entry } = held
    const dropped = this.#deps.dice.strikes('dropAck')
    const again = dropped || this.#deps.dice.strikes('duplicateDelivery')
    if (lane.inHand[0] !== held) lane.ackedAhead.push(entry)
    this.#release(held, 'acked')
    if (again) lane.waiting.putBack([entry], bySequence)
    else this.#unsettled.delete(entry.stored)
    this.#offer(lane)
    return dropped ? 'unconfirmed' : 'confirmed'
  }

  nack(held: Held, delayMs: number): void {
    if (held.state !== 'in-hand') return
    const { lane, entry } = held
    const after = lane.inHand.slice(lane.inHand.indexOf(held) + 1)
    const acked = lane.ackedAhead.filter(({ stored }) => stored.sequence > entry.stored.sequence)
    const ackedToo = acked.length > 0 && this.#deps.dice.strikes('redeliverSuccessors') ? acked : []
    lane.ackedAhead = lane.ackedAhead.filter((each) => !ackedToo.includes(each))
    this.#release(held, 'nacked')
    for (const successor of after) this.#release(successor, 'lost')
    lane.waiting.putBack([entry, ...after.map((each) => each.entry), ...ackedToo], bySequence)
    if (delayMs > 0) this.#rest(lane, delayMs)
    this.#offer(lane)
  }

  /** Hands one delivery to `receiver` if there is one that it may have. */
  #deliverTo(receiver: MemoryReceiver): boolean {
    for (const queue of receiver.queues(this.#ready)) {
      if (queue.size > 1 && this.#deps.dice.strikes('reorderKeys')) queue.push(queue.take() as Lane)
      for (let lane = queue.peek(); lane !== undefined; lane = queue.peek()) {
        const next = lane.rests === 0 ? lane.waiting.peek() : undefined
        if (next !== undefined && !receiver.hasRoomFor(next.stored.bytes)) break
        queue.take()
        lane.queued = false
        if (next === undefined) continue
        this.#hand(lane, receiver)
        return true
      }
    }
    return false
  }

  #hand(lane: Lane, receiver: MemoryReceiver): void {
    const entry = lane.waiting.take() as Entry
    entry.attempts += 1
    const held = new Held(this, { lane, entry, receiver })
    lane.owner = receiver
    lane.inHand.push(held)
    receiver.hold(held)
    this.#offer(lane)
    this.#deps.onDelivered(held.message)
    receiver.hand(held)
  }

  #laneOf(key: string | undefined): Lane {
    const known = key === undefined ? undefined : this.#lanes.get(key)
    if (known !== undefined) return known
    const lane: Lane = {
      key,
      life: this.#life,
      waiting: new Fifo(),
      inHand: [],
      ackedAhead: [],
      owner: undefined,
      queued: false,
      rests: 0,
    }
    if (key !== undefined) this.#lanes.set(key, lane)
    return lane
  }

  /** Lines the lane up if there is something in it to deliver, and forgets it if it is empty. */
  #offer(lane: Lane): void {
    if (lane.queued || lane.rests > 0 || lane.life !== this.#life) return
    if (lane.waiting.size > 0) {
      lane.queued = true
      const queue = lane.owner?.own ?? this.#ready
      queue.push(lane)
      this.#schedule()
    } else if (lane.inHand.length === 0 && lane.key !== undefined) {
      this.#lanes.delete(lane.key)
    }
  }

  #rest(lane: Lane, delayMs: number): void {
    lane.rests += 1
    void this.#deps.clock.sleep(delayMs, this.#closed.signal).then(() => {
      lane.rests -= 1
      this.#offer(lane)
    })
  }

  #release(held: Held, state: 'acked' | 'nacked' | 'lost'): void {
    const { lane, receiver } = held
    held.end(state)
    lane.inHand.splice(lane.inHand.indexOf(held), 1)
    if (lane.inHand.length === 0) {
      lane.owner = undefined
      lane.ackedAhead = []
    }
    receiver.release(held)
    this.#schedule()
  }

  #disconnect(receiver: MemoryReceiver): void {
    const index = this.#receivers.indexOf(receiver)
    if (index === -1) return
    this.#receivers.splice(index, 1)
    receiver.open = false
    for (const held of receiver.held()) {
      this.#release(held, 'lost')
      held.lane.waiting.putBack([held.entry], bySequence)
      this.#offer(held.lane)
    }
    for (let lane = receiver.own.take(); lane !== undefined; lane = receiver.own.take()) {
      lane.queued = false
      this.#offer(lane)
    }
    this.#deliverTooLate(receiver)
  }

  #deliverTooLate(receiver: MemoryReceiver): void {
    const lane = this.#ready.peek()
    const entry = lane?.waiting.peek()
    if (lane === undefined || entry === undefined || !this.#deps.dice.strikes('deliverAfterClose')) return
    const held = new Held(this, { lane, entry, receiver })
    held.end('lost')
    receiver.hand(held)
  }

  /** Deliveries are handed out from a task of their own, so that a receiver which settles at once does not recurse. */
  #schedule(): void {
    if (this.#scheduled || this.#receivers.length === 0) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      this.#deliver()
    })
  }

  #deliver(): void {
    for (let handed = 0, idle = 0; idle < this.#receivers.length; handed += 1) {
      if (handed >= deliveriesPerTask) return this.#schedule()
      this.#turn = (this.#turn + 1) % this.#receivers.length
      const receiver = this.#receivers[this.#turn] as MemoryReceiver
      idle = receiver.open && this.#deliverTo(receiver) ? 0 : idle + 1
    }
  }
}

function bySequence(a: Entry, b: Entry): number {
  return a.stored.sequence - b.stored.sequence
}
