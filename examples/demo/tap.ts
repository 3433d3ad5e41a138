/**
 * A subscription of the demo's own: sees what the broker sees, and puts back what no broker should.
 *
 * It checks that the first occurrence of each version comes in order. What it has seen it can publish again, as a duplicate, or
 * under a new id with its old version, as a stale event that no reader has met before.
 */
import { newId } from 'waybill'
import type { AnyStream, IncomingMessage, OutgoingMessage, Receiver, Transport } from 'waybill'
import { RunHistory } from './history.ts'
import type { Ledger } from './ledger.ts'

export const tapName = 'tap'

/** Marks what the demo made up. Readers do not look at it; the tap does. */
const forgedMark = 'demo_forged'
const keptMessages = 400
const behindBy = 5

export class Tap {
  /** Messages beyond the first of each version: republished by a relay, redelivered by the broker, or injected. */
  duplicates = 0
  readonly #transport: Transport
  readonly #ledger: Ledger
  readonly #history: RunHistory
  readonly #forged = new Set<string>()
  readonly #seen = new Map<string, number>()
  readonly #recent: IncomingMessage[] = []
  readonly #receivers: Receiver[] = []
  #poisons = 0

  constructor(transport: Transport, { ledger, history }: { readonly ledger: Ledger; readonly history: RunHistory }) {
    this.#transport = transport
    this.#ledger = ledger
    this.#history = history
  }

  /** Whether everything that was committed has been seen here. */
  get isThrough(): boolean {
    return this.#ledger.cursors().every((at) => (this.#seen.get(RunHistory.of(at)) ?? 0) >= at.version)
  }

  async open(streams: readonly AnyStream[], consumer: string): Promise<void> {
    for (const { topic } of streams) {
      const receiver = await this.#transport.receive({
        topic,
        consumer,
        maxMessages: 1_000,
        maxBytes: 16_000_000,
        onDelivery: (delivery) => {
          this.#take(delivery.message)
          void delivery.ack()
        },
        // A broker that is down is part of the show.
        onError: () => {},
      })
      this.#receivers.push(receiver)
    }
  }

  isForged(eventId: string): boolean {
    return this.#forged.has(eventId)
  }

  /** Publishes messages that were there already once more. Returns how many the broker took. */
  async injectDuplicates(count: number): Promise<number> {
    return await this.#publish(this.#recent.slice(-count).map((message) => copy(message)))
  }

  /** Publishes old versions as events that nobody has seen. Returns how many the broker took. */
  async injectStale(count: number): Promise<number> {
    const old = this.#recent.filter((message) => (this.#seen.get(keyOf(message)) ?? 0) - versionOf(message) >= behindBy)
    return await this.#publish(old.slice(-count).map((message) => this.#forge(message, {})))
  }

  /** Publishes an event that no reader knows what to do with, of an aggregate of its own. */
  async injectPoison(): Promise<number> {
    const message = this.#recent.at(-1)
    if (message === undefined) return 0
    const id = `poison-${(this.#poisons += 1)}`
    const forged = this.#forge(message, { event_type: 'VideoMangled', aggregate_id: id, version: '1' })
    return await this.#publish([{ ...forged, orderingKey: id }])
  }

  async close(): Promise<void> {
    await Promise.all(this.#receivers.map((receiver) => receiver.close(AbortSignal.abort())))
    await this.#transport.close()
  }

  #take(message: IncomingMessage): void {
    if (message.attributes[forgedMark] !== undefined) return
    const key = keyOf(message)
    const version = versionOf(message)
    const seen = this.#seen.get(key) ?? 0
    const event = message.attributes['event_id'] ?? ''
    this.#history.record({ op: 'log', source: tapName, topic: message.topic, event, aggregate: key, version })
    if (version <= seen) return void (this.duplicates += 1)
    if (version > seen + 1) this.#ledger.violate('outOfOrder', `${key}: the broker got version ${version} after ${seen}`)
    this.#seen.set(key, version)
    this.#recent.push(message)
    if (this.#recent.length > keptMessages) this.#recent.shift()
  }

  #forge(message: IncomingMessage, attributes: Readonly<Record<string, string>>): OutgoingMessage {
    const eventId = newId()
    this.#forged.add(eventId)
    const outgoing = copy(message)
    return { ...outgoing, attributes: { ...outgoing.attributes, ...attributes, event_id: eventId, [forgedMark]: 'yes' } }
  }

  async #publish(messages: readonly OutgoingMessage[]): Promise<number> {
    const signal = AbortSignal.timeout(10_000)
    const outcomes = await this.#transport.publish(messages, { signal, maySend: () => !signal.aborted })
    return outcomes.filter(({ status }) => status === 'confirmed').length
  }
}

function copy({ topic, orderingKey, attributes, body }: IncomingMessage): OutgoingMessage {
  return { topic, orderingKey, attributes, body }
}

function keyOf({ attributes }: IncomingMessage): string {
  return RunHistory.of({ type: attributes['aggregate_type'] ?? '', id: attributes['aggregate_id'] ?? '' })
}

function versionOf({ attributes }: IncomingMessage): number {
  return Number(attributes['version'])
}
