/** How processes of a cell reach its broker: an address that fits into a message, and the transport that it means. */
import { connectKafka, type KafkaConnectionOptions } from '../../src/transport/kafka/client/connect.ts'
import type { KafkaClient } from '../../src/transport/kafka/client/kafka-client.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import { pubsub } from '../../src/transport/pubsub/pubsub.ts'
import type { AckOutcome, Delivery, Transport } from '../../src/transport/port/transport.ts'
import { fastClock } from '../e2e/fast-clock.ts'
import { clockFactor, topic } from './ledger.ts'

export type BrokerAddress = PubsubAddress | KafkaAddress

export interface PubsubAddress {
  readonly emulatorHost: string
}

export interface KafkaAddress {
  /** The only broker there is, as `host:port`. */
  readonly broker: string
  /** Where messages go and come from, whatever they say: the cells share a broker. */
  readonly topic: string
  readonly sessionMs: number
}

/** What the ledger's topic is called there. */
export function topicOf(address: BrokerAddress): string {
  return 'topic' in address ? address.topic : topic
}

export type BrokerTimes = Readonly<Record<'connectTimeoutMs' | 'requestTimeoutMs' | 'publishTimeoutMs', number>>

/** For those whom nobody crashes: a broker that is late is no fault of the cell's. */
const patient: BrokerTimes = { connectTimeoutMs: 30_000, requestTimeoutMs: 30_000, publishTimeoutMs: 30_000 }
/** For the process that is crashed, on Kafka: where it was frozen, it wakes up when the time of its requests is over. */
export const impatient: BrokerTimes = { connectTimeoutMs: 1_000, requestTimeoutMs: 2_000, publishTimeoutMs: 1_500 }

export interface TransportToOptions {
  /** Puts something around the client of Kafka. */
  readonly around?: (client: KafkaClient) => KafkaClient
  /** @default half a minute each */
  readonly times?: BrokerTimes
}

export function transportTo(
  address: BrokerAddress,
  { around = (client) => client, times = patient }: TransportToOptions = {},
): Transport {
  if ('emulatorHost' in address) {
    const { emulatorHost } = address
    return pubsub({ projectId: 'crash', emulatorHost, silentMs: 15_000, clock: fastClock(clockFactor) })
  }
  const { broker, sessionMs } = address
  const { publishTimeoutMs, connectTimeoutMs, requestTimeoutMs } = times
  const [host = '', port = ''] = broker.split(':')
  const connection: KafkaConnectionOptions = {
    brokers: [broker],
    // Whatever it calls itself: there may be a proxy before it.
    addressOf: () => ({ host, port: Number(port) }),
    requestTimeoutMs,
    connectTimeoutMs,
  }
  const transport = kafka({
    ...connection,
    client: () => around(connectKafka(connection)),
    minInsyncReplicas: 1,
    publishTimeoutMs,
    sessionTimeoutMs: sessionMs,
    heartbeatMs: sessionMs / 10,
    rebalanceTimeoutMs: 3 * sessionMs,
    drainTimeoutMs: 2 * sessionMs,
    fetchMaxWaitMs: 50,
  })
  return onTopic(transport, address.topic)
}

function onTopic(transport: Transport, own: string): Transport {
  return {
    ...transport,
    publish: (messages, options) =>
      transport.publish(
        messages.map((message) => ({ ...message, topic: own })),
        options,
      ),
    receive: (options) => transport.receive({ ...options, topic: own }),
  }
}

/** Larger than a cell's topic takes. */
export const condemnedBytes = 40_000
export const topicMaxBytes = 20_000

/** Kafka refuses messages for their size alone: the first try of the first change of an account is made too large. */
export function condemning(transport: Transport): Transport {
  let isOver = false
  return {
    ...transport,
    publish: (messages, options) => {
      const sent = messages.map((message) => {
        const { version, aggregate_type: type } = message.attributes
        if (isOver || version !== '1' || type !== 'account') return message
        isOver = true
        return { ...message, body: new Uint8Array(condemnedBytes) }
      })
      return transport.publish(sent, options)
    },
  }
}

/** The first change of the first account comes only after the second, which was acknowledged by then. */
export function overtaking(transport: Pick<Transport, 'receive'>): Pick<Transport, 'receive'> {
  let isOver = false
  return {
    receive: (options) => {
      let late: Delivery | undefined
      const onDelivery = (delivery: Delivery): void => {
        const { version, aggregate_type: type, aggregate_id: id } = delivery.message.attributes
        const isMeant = type === 'account' && id === 'a'
        if (isMeant && version === '1' && !isOver) {
          isOver = true
          late = delivery
        } else if (isMeant && version === '2' && late !== undefined) {
          const { message, lost } = delivery
          const ack = async (): Promise<AckOutcome> => {
            const outcome = await delivery.ack()
            if (late !== undefined) options.onDelivery(late)
            late = undefined
            return outcome
          }
          options.onDelivery({ message, lost, ack, nack: (delayMs) => delivery.nack(delayMs) })
        } else options.onDelivery(delivery)
      }
      return transport.receive({ ...options, onDelivery })
    },
  }
}
