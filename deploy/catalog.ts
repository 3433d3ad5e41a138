/**
 * The catalog service as one process: gRPC, the consumer with what drains its dead letters at Pub/Sub, and health beside gRPC on
 * one HTTP/2 port. Metrics are on a port of their own on the loopback interface, for a collector in the same instance.
 *
 * Your methods are added to `server`; here only health is served. Cloud Run waits 10 seconds after SIGTERM, so stopping takes
 * less.
 */
import { Server, ServerCredentials } from '@grpc/grpc-js'
import {
  connect,
  createConsumer,
  createHealth,
  createInboxRetention,
  createMetrics,
  createSignals,
  deadLetterDrains,
  logSignals,
  run,
  startTelemetryServer,
} from 'waybill'
import { grpcHealth } from 'waybill/grpc'
import { pubsub } from 'waybill/pubsub'
import { videos } from './streams.ts'

const { DATABASE_URL = '', PUBSUB_PROJECT_ID = 'shop', PUBSUB_EMULATOR_HOST, PORT = '8080', METRICS_PORT = '9464' } = process.env
const deploymentId = process.env['WAYBILL_DEPLOYMENT_ID']
const stop = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort())

/** As Google Cloud names them. */
const severities = { debug: 'DEBUG', info: 'INFO', warn: 'WARNING', error: 'ERROR' } as const
const signals = createSignals()
logSignals({
  signals,
  log: ({ level, fields, ...entry }) =>
    process.stdout.write(`${JSON.stringify({ severity: severities[level], ...entry, ...fields })}\n`),
})
const metrics = createMetrics({ signals })
const db = connect({ url: DATABASE_URL, max: 10, signals })
const transport = pubsub({
  projectId: PUBSUB_PROJECT_ID,
  ...(PUBSUB_EMULATOR_HOST === undefined ? {} : { emulatorHost: PUBSUB_EMULATOR_HOST }),
})
const catalog = createConsumer({
  db,
  transport,
  name: 'catalog',
  service: 'catalog',
  deploymentId,
  streams: [videos],
  signals,
}).project(videos, {
  table: 'catalog.video',
  key: 'video_id',
  set: (event) => ({ title: event.data.title, url: event.data.url }),
})
const health = createHealth({ consumers: [catalog] })

const server = new Server()
const { definition, implementation } = grpcHealth(health)
server.addService(definition, implementation)
const port = await new Promise<number>((resolve, reject) =>
  server.bindAsync(`0.0.0.0:${PORT}`, ServerCredentials.createInsecure(), (error, bound) =>
    error === null ? resolve(bound) : reject(error),
  ),
)
const telemetry = await startTelemetryServer({ metrics, health: health.handler, port: Number(METRICS_PORT) })
process.stdout.write(`${JSON.stringify({ severity: 'INFO', message: 'The catalog listens.', port, metrics: telemetry.url })}\n`)
try {
  await run([catalog, ...deadLetterDrains(catalog), createInboxRetention({ db, signals })], {
    signal: stop.signal,
    signals,
    stopTimeoutMs: 6_000,
    abortTimeoutMs: 1_000,
  })
} finally {
  await new Promise<void>((resolve) => server.tryShutdown(() => resolve()))
  await telemetry.close()
  await transport.close()
  await db.close()
}
