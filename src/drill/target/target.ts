/**
 * Where drills run: on parts of their own that they may stop and restart, or on a user's stack, where they keep to themselves.
 */
import type { Postgres } from '../../testing/servers/postgres.ts'
import type { PubsubServer } from '../../testing/servers/pubsub-server.ts'
import type { Transport } from '../../transport/port/transport.ts'
import type { TransportPlace } from '../system/process.ts'
import { WaybillError } from '../../core/errors.ts'

export interface Target {
  readonly on: 'embedded' | 'config'
  readonly url: string
  readonly transport: TransportPlace
  /** What drills may stop and restart; not there on a user's stack. */
  readonly servers: EmbeddedServers | undefined
  makeTopic(order: TopicOrder): Promise<void>
  removeTopic(order: TopicOrder): Promise<void>
  /** Messages of a topic that a consumer has not settled; `undefined` where the broker cannot be asked. */
  unsettled(topic: string, consumer: string): Promise<number | undefined>
  close(): Promise<void>
}

export interface TopicOrder {
  readonly topic: string
  readonly consumers: readonly string[]
  readonly transport: Transport
}

export interface EmbeddedServers {
  readonly postgres: Postgres
  readonly broker: EmbeddedBroker
  /** The same with a Kafka in the place of Pub/Sub, started when first asked for. */
  kafka(): Promise<Target>
}

export interface EmbeddedBroker {
  /** Another one after `start`. */
  readonly server: PubsubServer
  /** Stops it; what it confirmed stays on its disk. */
  stop(): Promise<void>
  /** Starts it again where it was. */
  start(): Promise<void>
}

/** Reads of a topic beside the consumer: what the broker has. */
export const tapName = 'tap'

/** Drills that say `needs: 'servers'` are not run where there are none. */
export function serversOf({ servers }: Target): EmbeddedServers {
  if (servers === undefined)
    throw new WaybillError('INTERNAL', 'A drill that stops servers was run on a stack that is not its own.')
  return servers
}
