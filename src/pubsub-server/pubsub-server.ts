/**
 * A local server of the real google.pubsub.v1 protocol, for development, tests and drills.
 *
 * Any official client, in any language, uses it through PUBSUB_EMULATOR_HOST. It keeps the promises Google
 * documents, those that Google's own emulator leaves out included. It listens on the loopback interface unless told
 * otherwise, without TLS and without authentication: it is not for production.
 */
import type * as Grpc from '@grpc/grpc-js'
import { systemClock } from '../core/clock.ts'
import type { Clock } from '../core/clock.ts'
import { WaybillError } from '../core/errors.ts'
import { seededRandom } from '../core/random.ts'
import { Broker } from './broker.ts'
import { Faults } from './faults.ts'
import type { FaultOptions } from './faults.ts'
import { loadProtocol } from './protocol/protocol.ts'
import { statusMapper } from './services/call.ts'
import type { CallContext } from './services/call.ts'
import { publisherCodecs, publisherService } from './services/publisher-service.ts'
import { streamingPull } from './services/streaming-pull.ts'
import { subscriberCodecs, subscriberService } from './services/subscriber-service.ts'
import { memoryJournal } from './storage/journal.ts'

export interface PubsubServerOptions {
  /** @default 0 (a free port) */
  readonly port?: number
  /** @default '127.0.0.1' */
  readonly host?: string
  /** Faults in force from the start. */
  readonly faults?: FaultOptions
  /** What faults are drawn from. @default 1 */
  readonly seed?: number | string
  /** @default the system's clock */
  readonly clock?: Clock
}

export interface SubscriptionStats {
  readonly name: string
  readonly unackedMessages: number
  readonly unackedBytes: number
  readonly leasedMessages: number
  readonly streams: number
}

export interface PubsubServerStats {
  readonly topics: number
  readonly published: number
  readonly settled: number
  readonly subscriptions: readonly SubscriptionStats[]
}

export interface PubsubServer {
  readonly host: string
  readonly port: number
  /** The value for PUBSUB_EMULATOR_HOST. */
  readonly emulatorHost: string
  readonly faults: Faults
  stats(): PubsubServerStats
  /** Ends every stream and call, and frees the port. */
  stop(): Promise<void>
}

export async function startPubsubServer(options: PubsubServerOptions = {}): Promise<PubsubServer> {
  const { port: wantedPort = 0, host = '127.0.0.1', clock = systemClock, seed = 1 } = options
  const grpc = await loadGrpc()
  const faults = new Faults(seededRandom(seed), options.faults)
  const broker = new Broker({ clock, faults, journal: memoryJournal })
  const server = newGrpcServer(grpc, broker)
  const port = await bind(server, `${host}:${wantedPort}`, grpc)
  return {
    host,
    port,
    emulatorHost: `${host}:${port}`,
    faults,
    stats: () => statsOf(broker),
    stop: async () => {
      broker.close()
      server.forceShutdown()
    },
  }
}

/** Larger than any request Google accepts, so that one too large is refused with the documented status. */
const maxReceiveBytes = 32 * 1024 * 1024

function newGrpcServer(grpc: typeof Grpc, broker: Broker): Grpc.Server {
  const protocol = loadProtocol()
  const codecs = { status: protocol.codec('google.rpc.Status'), errorInfo: protocol.codec('google.rpc.ErrorInfo') }
  const context: CallContext = { broker, toStatus: statusMapper(codecs, () => new grpc.Metadata()) }
  const server = new grpc.Server({ 'grpc.max_receive_message_length': maxReceiveBytes, 'grpc.max_send_message_length': -1 })
  const add = (name: string, methods: object, handlers: object): void =>
    server.addService(methods as Grpc.ServiceDefinition, handlers as Grpc.UntypedServiceImplementation)
  add('Publisher', protocol.service('google.pubsub.v1.Publisher', publisherCodecs), publisherService(context))
  add('Subscriber', protocol.service('google.pubsub.v1.Subscriber', subscriberCodecs), {
    ...subscriberService(context),
    StreamingPull: streamingPull(context, protocol.codec('google.pubsub.v1.StreamingPullResponse')),
  })
  return server
}

async function loadGrpc(): Promise<typeof Grpc> {
  try {
    return await import('@grpc/grpc-js')
  } catch (cause) {
    throw new WaybillError('MISSING_PACKAGE', 'The Pub/Sub server needs @grpc/grpc-js: npm install @grpc/grpc-js', { cause })
  }
}

function bind(server: Grpc.Server, address: string, grpc: typeof Grpc): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error, port) => {
      if (error === null) return resolve(port)
      const message = `The Pub/Sub server cannot listen on ${address}: ${error.message}. Choose another port, or 0 for a free one.`
      reject(new WaybillError('UNAVAILABLE', message, { cause: error, retryable: false }))
    })
  })
}

function statsOf(broker: Broker): PubsubServerStats {
  return {
    topics: broker.topics.size,
    published: broker.published,
    settled: broker.settled,
    subscriptions: [...broker.subscriptions.values()].map(({ name, queue, dispatcher }) => ({
      name,
      unackedMessages: queue.unackedMessages,
      unackedBytes: queue.unackedBytes,
      leasedMessages: queue.leasedMessages,
      streams: dispatcher.sinks.length,
    })),
  }
}
