/**
 * Lets in only what is signed, whatever the transport: a message of ours is verified before anything else is done with it.
 *
 *   signed by a key we know              handed on, without what others added to it
 *   unsigned                             refused; handed on and counted with `verify: 'accept'`
 *   signed otherwise, or changed         refused
 *
 * What is refused is acknowledged at once: it holds nothing, moves nothing and comes no more. A message that says it is of a stream that
 * the consumer does not read is handed on with its verdict: it may be ignored, and is refused where it would be kept. What the tables
 * have was verified when it came.
 */
import type { Delivery, Receiver, ReceiveOptions, Transport } from '../../transport/port/transport.ts'
import type { Distrust } from '../../core/event/signing.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import { isForeign, readEvent, type RawMessage } from '../model/received-event.ts'
import { createRefusals } from '../failure/refused-messages.ts'
import type { Routes } from '../model/routes.ts'

type VerifySettings = Pick<ConsumerSettings, 'verify' | 'verifier' | 'db' | 'schema' | 'name' | 'signals' | 'clock'>

export interface VerifiedParts {
  readonly transport: Pick<Transport, 'receive'>
  readonly settings: VerifySettings
  /** Whether a message is of a stream that the consumer does not read. @default none is */
  readonly isOthers?: ((message: RawMessage) => boolean) | undefined
  /** The topic that the message of a delivery was published to. @default the one that it came from */
  readonly publishedTo?: string | undefined
}

/** The same transport, as far as it is believed. */
export function verified({ transport, settings, isOthers, publishedTo }: VerifiedParts): Pick<Transport, 'receive'> {
  const { verify, verifier, name, signals } = settings
  if (verify === 'off' || verifier === undefined) return transport
  const refusals = createRefusals(settings)
  return {
    receive: async (options) => {
      const onDelivery = (delivery: Delivery): void => {
        const { message } = delivery
        const { topic, attributes, body } = message
        const verdict = verifier.verify({ topic: publishedTo ?? topic, attributes, body })
        if ('attributes' in verdict)
          return options.onDelivery(verdict.attributes === attributes ? delivery : withAttributes(delivery, verdict.attributes))
        const isAccepted = verdict.distrust === 'unsigned' && verify === 'accept'
        if (isOthers?.(message) === true) {
          if (!isAccepted) distrusted.set(message, verdict.distrust)
          return options.onDelivery(delivery)
        }
        if (isAccepted) {
          signals.emit('consumer.unsigned', { consumer: name, topic })
          return options.onDelivery(delivery)
        }
        refusals.refuse(message, verdict.distrust)
        void delivery.ack()
      }
      const receiver = await transport.receive({ ...options, onDelivery } satisfies ReceiveOptions)
      return thenEnded(receiver, () => refusals.ended())
    },
  }
}

/** Messages of streams that this consumer does not read, and that are not believed. */
const distrusted = new WeakMap<RawMessage, Distrust>()

/** Why a message of a stream that the consumer does not read must not be kept. */
export function distrustOf(message: RawMessage): Distrust | undefined {
  return distrusted.get(message)
}

/** The events of other streams, which may share the topic. */
export function othersOf({ stream }: Pick<Routes, 'stream'>): NonNullable<VerifiedParts['isOthers']> {
  return (message) => {
    const type: unknown = message.attributes['aggregate_type']
    if (typeof type !== 'string' || stream(type) !== undefined) return false
    return !isForeign(readEvent(message))
  }
}

/** Its acks are its own: a transport that takes them together knows its own deliveries only. */
function withAttributes(delivery: Delivery, attributes: RawMessage['attributes']): Delivery {
  const { messageId, topic, orderingKey, body, publishedAtMs, deliveryAttempt, position } = delivery.message
  return {
    message: { messageId, topic, orderingKey, attributes, body, publishedAtMs, deliveryAttempt, position },
    ack: () => delivery.ack(),
    nack: (delayMs) => delivery.nack(delayMs),
    ...(delivery.stall === undefined ? {} : { stall: () => delivery.stall?.() }),
    get lost() {
      return delivery.lost
    },
  }
}

function thenEnded(receiver: Receiver, ended: () => Promise<void>): Receiver {
  return {
    close: async (aborting) => {
      await receiver.close(aborting)
      await ended()
    },
  }
}
