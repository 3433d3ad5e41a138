/**
 * The nasty in-memory broker behind a network: a process asks it as it asks the database, and may not hear the answer.
 *
 * Requests are formed as every transport forms them, one under way per ordering key. Whether one may be sent is asked before
 * it sets out; so one that is late lands late, after its sender lost its lease.
 */
import type { Clock } from '../../src/core/service/clock.ts'
import type { Random } from '../../src/core/service/random.ts'
import { MemoryBroker } from '../../src/transport/memory/broker.ts'
import { MemoryPublishing } from '../../src/transport/memory/publish.ts'
import { createDice, type Dice, type Nastiness } from '../../src/transport/memory/faults.ts'
import { publishRuns } from '../../src/transport/port/publish-runs.ts'
import type { Delivery, Publisher, Transport } from '../../src/transport/port/transport.ts'
import type { Actor } from './actor.ts'

export interface FakeBroker {
  readonly log: MemoryBroker
  readonly publishing: MemoryPublishing
  /** The broker as one process sees it. */
  connect(actor: Actor): Transport
  /** From now on nothing goes wrong any more. */
  calm(): void
}

export function fakeBroker(options: {
  readonly clock: Clock
  readonly random: Random
  readonly nasty: Partial<Nastiness>
}): FakeBroker {
  const { clock, random, nasty } = options
  const sound = createDice(nasty, random)
  let isCalm = false
  const dice: Dice = { ...sound, strikes: (what) => !isCalm && sound.strikes(what) }
  const log = new MemoryBroker({ clock, dice, retain: true })
  const maxBytes = 1_000_000
  const publishing = new MemoryPublishing({ broker: log, dice, clock, maxBytes, latencyMs: 0, lateMs: 60, rejects: () => false })
  return {
    log,
    publishing,
    connect: (actor) => ({
      name: 'fake',
      ...publisher(publishing, actor),
      receive: async (receiving) => {
        const subscription = log.subscription(receiving.topic, receiving.consumer)
        const receiver = subscription.receive({
          ...receiving,
          onDelivery: (delivery) => void hand(actor, delivery, receiving.onDelivery),
        })
        // A dead process lets go of everything in hand, as a broken connection would.
        actor.onDeath(() => void receiver.close(AbortSignal.abort()))
        return receiver
      },
      seek: () => Promise.resolve(),
      close: () => Promise.resolve(),
    }),
    calm: () => {
      isCalm = true
      publishing.outage = 'none'
      publishing.missing = new Set()
      publishing.rejects = () => false
    },
  }
}

function publisher(publishing: MemoryPublishing, actor: Actor): Publisher {
  const sender = {
    maxRequestMessages: 2,
    maxRequestBytes: publishing.maxRequestBytes,
    maxConcurrentRequests: publishing.maxConcurrentRequests,
    isRejection: (error: unknown): boolean => publishing.isRejection(error),
    isUnroutable: (error: unknown): boolean => publishing.isUnroutable(error),
    send: (messages: Parameters<MemoryPublishing['send']>[0], signal: AbortSignal) =>
      actor.ask(`publish ${messages.map(({ attributes: { aggregate_id: id, version } }) => `${id}${version}`).join(' ')}`, () =>
        publishing.send(messages, signal),
      ),
  }
  return { maxBytes: publishing.maxRequestBytes, publish: (messages, options) => publishRuns(sender, messages, options) }
}

/** A delivery on its way in, and its end on the way out. Where the broker does not hear of it, the delivery's lease ends. */
async function hand(actor: Actor, delivery: Delivery, onDelivery: (delivery: Delivery) => void): Promise<void> {
  const { aggregate_id: id, version } = delivery.message.attributes
  const what = `${id}${version}`
  await actor.ask(`delivery ${what}`, () => Promise.resolve()).catch(() => undefined)
  onDelivery({
    message: delivery.message,
    lost: delivery.lost,
    ack: () =>
      actor
        .ask(`ack ${what}`, () => delivery.ack())
        .catch(async () => {
          await delivery.nack()
          return 'unconfirmed' as const
        }),
    nack: (delayMs) => actor.ask(`nack ${what}`, () => delivery.nack(delayMs)).catch(() => delivery.nack()),
  })
}
