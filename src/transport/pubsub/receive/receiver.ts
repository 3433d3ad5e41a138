/**
 * Receives from one subscription: hands deliveries over in order and within the bounds, keeps their leases until they are
 * settled, and lets the service forget a message only when its handler said so.
 *
 * Closing asks for no more, hands over what the service had already sent, waits until it is settled, and then disconnects:
 * nothing in hand is given back, so a restart costs no redelivery. Aborting gives back what is unsettled.
 */
import type { Clock } from '../../../core/service/clock.ts'
import { WaybillError } from '../../../core/errors.ts'
import type { Random } from '../../../core/service/random.ts'
import { openConnection, type PubsubConnectOptions, type ReceivedMessage } from '../client/connection.ts'
import { PubsubDelivery, type DeliveryOwner } from './delivery.ts'
import { Holds } from './delayed-nacks.ts'
import { LeaseKeeper } from './lease-keeper.ts'
import { PullLoop } from './pull-stream.ts'
import { Settler } from './acks.ts'
import type { AckOutcome, ReceiveOptions, Receiver } from '../../port/transport.ts'

export interface PubsubReceiverOptions extends ReceiveOptions {
  readonly connect: PubsubConnectOptions
  readonly subscription: string
  readonly exactlyOnce: boolean
  readonly leaseMs: number
  readonly maxLeaseMs: number
  readonly silentMs: number
  readonly callTimeoutMs: number
  readonly clock: Clock
  readonly random: Random
}

/** How long an aborted close waits for the service's answers. */
const abandonMs = 1_000

export class PubsubReceiver implements Receiver, DeliveryOwner {
  readonly #options: PubsubReceiverOptions
  readonly #pull: PullLoop
  readonly #settler: Settler
  readonly #leases: LeaseKeeper
  readonly #holds: Holds
  readonly #closed = new AbortController()
  /** Unsettled deliveries of each key, in the order of their arrival. */
  readonly #byKey = new Map<string, Set<PubsubDelivery>>()
  readonly #waiting: PubsubDelivery[] = []
  /** Arrivals are checked one response after the other, so that they stay in order. */
  #checking: Promise<void> | undefined
  #inHand = 0
  #inHandBytes = 0
  #isHandingOver = false
  #isAbandoned = false
  #hasToldOfDeadLetters = false
  #whenSettled: (() => void)[] = []
  #closing: Promise<void> | undefined

  constructor(options: PubsubReceiverOptions) {
    const { clock, random, leaseMs, maxLeaseMs, subscription, callTimeoutMs } = options
    this.#options = options
    this.#pull = new PullLoop({
      ...options,
      open: () => openConnection('Subscriber', options.connect),
      onMessages: (messages, isExactlyOnce) => this.#arrive(messages, isExactlyOnce),
    })
    this.#settler = new Settler({
      clock,
      random,
      call: async (method, request, signal) => {
        const connection = await this.#pull.connection(signal)
        const options = { routing: { subscription }, timeoutMs: callTimeoutMs, signal }
        return connection.call(method, { subscription, ...request }, options)
      },
    })
    this.#leases = new LeaseKeeper({
      clock,
      leaseMs,
      maxLeaseMs,
      settler: this.#settler,
      onLost: (delivery) => this.#lose(delivery),
    })
    this.#holds = new Holds({
      clock,
      maxHeld: options.maxMessages / 2,
      maxHeldBytes: options.maxBytes / 2,
      giveBack: (deliveries, seconds) => this.#giveBack(deliveries, seconds),
    })
  }

  async open(): Promise<void> {
    void this.#leases.run(this.#closed.signal)
    try {
      await this.#pull.start()
    } catch (error) {
      this.#closed.abort()
      this.#pull.disconnect()
      throw error
    }
  }

  close(aborting?: AbortSignal): Promise<void> {
    this.#closing ??= this.#close()
    if (aborting?.aborted === true) this.#abandon()
    else aborting?.addEventListener('abort', () => this.#abandon(), { once: true })
    return this.#closing
  }

  async ack(delivery: PubsubDelivery): Promise<AckOutcome> {
    if (delivery.state !== 'in-hand') return delivery.state === 'acked' ? 'unconfirmed' : 'lost'
    this.#takeBack(delivery, 'acked')
    // Its lease is kept until the answer is there, or the message would come again while we repeat ourselves.
    const outcome = this.#settler.ack(delivery.ackId)
    this.#handOver()
    const result = await outcome
    this.#forget(delivery)
    return result
  }

  async nack(delivery: PubsubDelivery, delayMs: number): Promise<void> {
    if (delivery.state !== 'in-hand') return
    const successors = this.#successors(delivery)
    this.#takeBack(delivery, 'held')
    const givenBack = this.#hold([delivery, ...successors], delayMs)
    if (delayMs <= 0) await givenBack
  }

  #arrive(messages: readonly ReceivedMessage[], isExactlyOnce: boolean): void {
    const { clock, topic, leaseMs, exactlyOnce, subscription, onError } = this.#options
    if (exactlyOnce && !isExactlyOnce) onError(notExactlyOnce(subscription))
    this.#watchDeadLetters(messages)
    const nowMs = clock.monotonicMs()
    const arrived = messages.map((message) => new PubsubDelivery(message, this, { topic, nowMs, leaseMs }))
    for (const delivery of arrived) this.#register(delivery)
    if (!isExactlyOnce && this.#checking === undefined) return this.#accept(arrived)
    const checked = (this.#checking ?? Promise.resolve()).then(async () => {
      // With exactly-once delivery a lease is ours only when the service confirms that it still is.
      // One that is not is taken out, with those behind it, before this goes on.
      if (isExactlyOnce) await Promise.all(arrived.map((delivery) => this.#leases.extend(delivery)))
      this.#accept(arrived)
      if (this.#checking === checked) this.#checking = undefined
    })
    this.#checking = checked
  }

  /** Only a subscription with a dead-letter policy counts. Told of at the first, and of each that has come again: it is on its way. */
  #watchDeadLetters(messages: readonly ReceivedMessage[]): void {
    const { givesNothingUp, subscription, onError } = this.#options
    if (givesNothingUp !== true) return
    const attempt = Math.max(...messages.map(({ deliveryAttempt }) => deliveryAttempt))
    if (attempt <= (this.#hasToldOfDeadLetters ? 1 : 0)) return
    this.#hasToldOfDeadLetters = true
    onError(hasDeadLetters(subscription, attempt))
  }

  #register(delivery: PubsubDelivery): void {
    const key = delivery.message.orderingKey
    this.#leases.add(delivery)
    if (key === undefined) return
    const siblings = this.#byKey.get(key)
    if (siblings === undefined) this.#byKey.set(key, new Set([delivery]))
    else siblings.add(delivery)
  }

  #accept(deliveries: readonly PubsubDelivery[]): void {
    for (const delivery of deliveries) {
      const key = delivery.message.orderingKey
      if (delivery.state !== 'waiting') continue
      if (this.#isAbandoned) {
        this.#takeBack(delivery, 'over')
        void this.#giveBack([delivery], 0)
      } else if (key !== undefined && this.#holds.isHeld(key) && !this.#holds.isBack(key, delivery)) {
        this.#takeBack(delivery, 'held')
        this.#holds.join(key, delivery)
      } else this.#waiting.push(delivery)
    }
    this.#handOver()
  }

  #handOver(): void {
    // A handler may settle at once, which leads back here.
    if (this.#isHandingOver) return
    this.#isHandingOver = true
    for (let next = this.#waiting[0]; next !== undefined && this.#hasRoom(next); next = this.#waiting[0]) {
      this.#waiting.shift()
      next.state = 'in-hand'
      this.#inHand += 1
      this.#inHandBytes += next.bytes
      try {
        this.#options.onDelivery(next)
      } catch (cause) {
        this.#options.onError(new WaybillError('INTERNAL', 'The handler of deliveries threw; it must not.', { cause }))
        void this.nack(next, 0)
      }
    }
    this.#isHandingOver = false
  }

  #hasRoom({ bytes }: PubsubDelivery): boolean {
    const { maxMessages, maxBytes } = this.#options
    return this.#inHand === 0 || (this.#inHand < maxMessages && this.#inHandBytes + bytes <= maxBytes)
  }

  /** Those of the same key that came later and are not settled. */
  #successors(delivery: PubsubDelivery): PubsubDelivery[] {
    const key = delivery.message.orderingKey
    const siblings = [...(key === undefined ? [] : (this.#byKey.get(key) ?? []))]
    return siblings.slice(siblings.indexOf(delivery) + 1).filter(({ state }) => state === 'waiting' || state === 'in-hand')
  }

  /** Takes deliveries of one key out of every hand, and gives them back after `delayMs`. */
  #hold(deliveries: readonly PubsubDelivery[], delayMs: number): Promise<void> {
    for (const delivery of deliveries) {
      if (delivery.state === 'in-hand') delivery.lose()
      if (delivery.state === 'waiting') this.#unqueue(delivery)
      this.#takeBack(delivery, 'held')
    }
    const givenBack = this.#holds.hold(deliveries, delayMs)
    this.#handOver()
    return givenBack
  }

  #unqueue(delivery: PubsubDelivery): void {
    const index = this.#waiting.indexOf(delivery)
    if (index >= 0) this.#waiting.splice(index, 1)
  }

  #takeBack(delivery: PubsubDelivery, state: 'acked' | 'held' | 'over'): void {
    if (delivery.state === 'in-hand') {
      this.#inHand -= 1
      this.#inHandBytes -= delivery.bytes
    }
    delivery.state = state
    const key = delivery.message.orderingKey
    const siblings = key === undefined ? undefined : this.#byKey.get(key)
    siblings?.delete(delivery)
    if (key !== undefined && siblings?.size === 0) this.#byKey.delete(key)
    if (this.#inHand === 0 && this.#waiting.length === 0) for (const wake of this.#whenSettled.splice(0)) wake()
  }

  /**
   * Its lease has ended, or we have to believe so. It comes again, and so must everything behind it under its key; should the
   * service believe that it is still ours, giving it back makes sure that it comes first.
   */
  #lose(delivery: PubsubDelivery): void {
    if (delivery.state === 'acked' || delivery.state === 'held') return
    const successors = this.#successors(delivery)
    delivery.lose()
    void this.#hold([delivery, ...successors], 0)
  }

  #forget(delivery: PubsubDelivery): void {
    delivery.state = 'over'
    this.#leases.remove(delivery)
  }

  async #giveBack(deliveries: readonly PubsubDelivery[], seconds: number): Promise<void> {
    await Promise.all(deliveries.map(({ ackId }) => this.#settler.modify(ackId, seconds)))
    for (const delivery of deliveries) this.#forget(delivery)
  }

  async #close(): Promise<void> {
    await this.#pull.stop()
    await this.#checking
    if (this.#inHand > 0 || this.#waiting.length > 0) await new Promise<void>((done) => this.#whenSettled.push(done))
    await this.#holds.close()
    await this.#settler.idle()
    this.#closed.abort()
    this.#pull.disconnect()
  }

  /** Gives back all that is unsettled, so that others get it now; a service that does not answer is not waited for. */
  #abandon(): void {
    if (this.#isAbandoned) return
    this.#isAbandoned = true
    void this.#options.clock.sleep(abandonMs, this.#closed.signal).then(() => this.#settler.giveUp())
    const unsettled = this.#leases.all().filter(({ state }) => state === 'waiting' || state === 'in-hand')
    this.#waiting.length = 0
    for (const delivery of unsettled) {
      delivery.lose()
      this.#takeBack(delivery, 'over')
    }
    void this.#giveBack(unsettled, 0)
  }
}

function hasDeadLetters(subscription: string, attempt: number): WaybillError {
  return new WaybillError(
    'INVALID_OPTION',
    `${subscription} has a dead-letter policy, and its consumer stops at what fails: Pub/Sub takes that away after some deliveries (this is number ${attempt}), and its key goes on without it. Provision the consumer with onPoison: 'stop', which removes the policy.`,
  )
}

function notExactlyOnce(subscription: string): WaybillError {
  return new WaybillError(
    'INVALID_OPTION',
    `${subscription} has no exactly-once delivery, but the transport was told so. Provision it, or drop exactlyOnce.`,
  )
}
