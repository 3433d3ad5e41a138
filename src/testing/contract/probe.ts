/**
 * What the transport contract's promises are checked with: messages that are easy to tell apart, a publish that waits for
 * its outcomes, and a receiver that remembers everything it was handed.
 */
import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import type {
  Delivery,
  OutgoingMessage,
  PublishOptions,
  PublishOutcome,
  Receiver,
  Transport,
} from '../../transport/port/transport.ts'
import { eventually } from '../kit/eventually.ts'

/** A message whose body is its name. */
export function message(topic: string, name: string, orderingKey?: string): OutgoingMessage {
  return { topic, orderingKey, attributes: { name }, body: Buffer.from(name) }
}

/** `a1 b1 c1 a2 b2 c2 …`: `count` messages for each key, interleaved. */
export function interleaved(topic: string, keys: readonly string[], count: number): readonly OutgoingMessage[] {
  return Array.from({ length: count }, (_, i) => keys.map((key) => message(topic, `${key}${i + 1}`, key))).flat()
}

export const always: PublishOptions = { signal: new AbortController().signal, maySend: () => true }

export async function publish(
  transport: Transport,
  messages: readonly OutgoingMessage[],
  options: Partial<PublishOptions> = {},
): Promise<readonly PublishOutcome[]> {
  const outcomes = await transport.publish(messages, { ...always, ...options })
  assert.equal(outcomes.length, messages.length, 'one outcome per message')
  return outcomes
}

/** Publishes and insists on success; an outcome that says "unavailable" is tried again, as a relay would. */
export async function publishAll(transport: Transport, messages: readonly OutgoingMessage[]): Promise<void> {
  let left = messages
  await eventually(async () => {
    const outcomes = await publish(transport, left)
    left = left.filter((_, i) => outcomes[i]?.status !== 'confirmed')
    assert.deepEqual(
      statuses(outcomes).filter((status) => status === 'rejected'),
      [],
      'nothing is rejected',
    )
    return left.length === 0
  })
}

export function statuses(outcomes: readonly PublishOutcome[]): readonly string[] {
  return outcomes.map(({ status }) => status)
}

export interface ProbeOptions {
  readonly topic: string
  readonly consumer?: string
  readonly maxMessages?: number
  readonly maxBytes?: number
  /** What to do with a delivery. @default ack */
  readonly on?: (delivery: Delivery) => void
}

/** A receiver and everything it was handed. */
export interface Probe {
  readonly deliveries: readonly Delivery[]
  /** The names of what was handed over, in order, repetitions included. */
  names(): readonly string[]
  /** The names, each at its first occurrence. */
  firstNames(): readonly string[]
  /** The first occurrences of a key. */
  ofKey(key: string): readonly string[]
  /** Waits until at least `count` different messages have come. */
  until(count: number): Promise<void>
  readonly receiver: Receiver
}

export async function probe(transport: Transport, options: ProbeOptions): Promise<Probe> {
  const { topic, consumer = 'one', maxMessages = 1_000, maxBytes = 64_000_000, on = (delivery) => void delivery.ack() } = options
  const deliveries: Delivery[] = []
  const receiver = await transport.receive({
    topic,
    consumer,
    maxMessages,
    maxBytes,
    onDelivery: (delivery) => {
      deliveries.push(delivery)
      on(delivery)
    },
    onError: () => undefined,
  })
  const names = (): readonly string[] => deliveries.map(nameOf)
  const firstNames = (): readonly string[] => [...new Set(names())]
  return {
    deliveries,
    names,
    firstNames,
    ofKey: (key) => [...new Set(deliveries.filter((each) => each.message.orderingKey === key).map(nameOf))],
    until: async (count) => {
      await eventually(() =>
        assert.ok(
          firstNames().length >= count,
          `${firstNames().length} of ${count} messages came: ${names().slice(-20).join(' ')}`,
        ),
      )
    },
    receiver,
  }
}

export function nameOf({ message: { attributes } }: Delivery): string {
  return attributes['name'] ?? ''
}

/** Gives what must not happen a fair chance to happen. */
export async function letTimePass(): Promise<void> {
  await delay(150)
}

export const abandoned: AbortSignal = AbortSignal.abort()
