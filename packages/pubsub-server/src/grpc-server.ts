/** The broker's services on a gRPC server. */
import type { Http2Server, IncomingHttpHeaders, ServerHttp2Session } from 'node:http2'
import { Server, ServerCredentials } from '@grpc/grpc-js'
import type { ServiceDefinition, UntypedServiceImplementation } from '@grpc/grpc-js'
import type { Broker } from './broker/broker.ts'
import { PubsubServerError } from './model/server-error.ts'
import { loadProtocol } from './protocol/protocol.ts'
import { statusMapper } from './services/call.ts'
import type { CallContext } from './services/call.ts'
import { iamService } from './services/iam-service.ts'
import { publisherCodecs, publisherService } from './services/publisher-service.ts'
import { schemaService } from './services/schema-service.ts'
import { snapshotService } from './services/snapshot-service.ts'
import { streamingPull } from './services/streaming-pull.ts'
import { subscriberCodecs, subscriberService } from './services/subscriber-service.ts'

/** Larger than any request Google accepts, so that one too large is refused with the documented status. */
const maxReceiveBytes = 32 * 1024 * 1024

export interface GrpcListener {
  readonly port: number
  close(): void
}

/** Serves the broker on `address`. */
export async function listenGrpc(broker: Broker, address: string): Promise<GrpcListener> {
  const server = newServer(broker)
  const port = await bind(server, address)
  tuneConnections(server)
  return { port, close: () => server.forceShutdown() }
}

function newServer(broker: Broker): Server {
  const protocol = loadProtocol()
  const codecs = { status: protocol.codec('google.rpc.Status'), errorInfo: protocol.codec('google.rpc.ErrorInfo') }
  const context: CallContext = { broker, toStatus: statusMapper(codecs) }
  const server = new Server({ 'grpc.max_receive_message_length': maxReceiveBytes, 'grpc.max_send_message_length': -1 })
  const add = (name: string, handlers: object, ownCodecs = {}): void => {
    const methods = protocol.service(name, ownCodecs) as unknown as ServiceDefinition
    server.addService(methods, handlers as UntypedServiceImplementation)
  }
  add('google.pubsub.v1.Publisher', publisherService(context), publisherCodecs)
  const streaming = { StreamingPull: streamingPull(context, protocol.codec('google.pubsub.v1.StreamingPullResponse')) }
  add(
    'google.pubsub.v1.Subscriber',
    { ...subscriberService(context), ...snapshotService(context), ...streaming },
    subscriberCodecs,
  )
  add('google.pubsub.v1.SchemaService', schemaService(context))
  add('google.iam.v1.IAMPolicy', iamService(context))
  return server
}

function bind(server: Server, address: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) => {
      if (error === null) return resolve(port)
      const message = `The Pub/Sub server cannot listen on ${address}: ${error.message}. Choose another port, or 0 for a free one.`
      reject(new PubsubServerError('UNAVAILABLE', message, { cause: error }))
    })
  })
}

const unitMs: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 }
const longestTimeoutSeconds = 2_000_000

/** A request of the largest size in flight on a connection, and some more. */
const windowBytes = 16 * 1024 * 1024

/**
 * What gRPC's server has no option for, done on the HTTP/2 servers under it.
 *
 * Its receive window of 64 KiB makes a large publish wait for the network several times; a wider one does not. And
 * some clients send years for "no time-out", which it gives to a timer that cannot hold it: the timer fires at once
 * and fails the call. So the header is shortened before gRPC reads it.
 */
function tuneConnections(server: Server): void {
  const { http2Servers } = server as unknown as { http2Servers?: ReadonlyMap<Http2Server, unknown> }
  for (const http2Server of http2Servers?.keys() ?? []) {
    http2Server.prependListener('session', (session: ServerHttp2Session) => {
      session.settings({ initialWindowSize: windowBytes })
      session.setLocalWindowSize(windowBytes)
    })
    http2Server.prependListener('stream', (_stream: unknown, headers: IncomingHttpHeaders) => {
      const timeout = /^(\d+)([HMSmun])$/.exec(String(headers['grpc-timeout'] ?? ''))
      if (timeout === null) return
      const ms = Number(timeout[1]) * (unitMs[timeout[2] ?? ''] ?? 0)
      if (ms > longestTimeoutSeconds * 1000) headers['grpc-timeout'] = `${longestTimeoutSeconds}S`
    })
  }
}
