/**
 * The video service, which owns its data: commands over HTTP (`POST /videos/:id`, and those of the game), each answered with a
 * consistency token, and `GET /videos/:id` for readers whose catalog is behind.
 */
import { Redis } from 'ioredis'
import {
  connect,
  createBacklogReport,
  createCommands,
  createMarkerCleanup,
  createMetrics,
  createOutbox,
  createSignals,
  ioredisCache,
  memoryCache,
  run,
} from 'waybill'
import { fastifyCommand } from 'waybill/fastify'
import { createGame } from '../../game/server.ts'
import { publishVideo } from '../video-commands.ts'
import { connectParent } from './parent.ts'

const { settings, stopping, ready } = await connectParent()
const signals = createSignals()
const metrics = createMetrics({ signals })
const db = connect({ url: settings.videoUrl, applicationName: 'video', signals })
const redis = connectRedis(settings.redisUrl)
const cache = redis === undefined ? memoryCache() : ioredisCache(redis)
const outbox = createOutbox()
const commands = createCommands({ db, outbox, cache, signals, waitForWinnerMs: 1_000 })
const app = createGame({ db, cache, signals })

interface VideoRoute {
  Params: { id: string }
}
app.post<VideoRoute>(
  '/videos/:id',
  fastifyCommand(commands, publishVideo, {
    principal: (request) => String(request.headers['x-editor'] ?? '') || undefined,
    input: (body, request) => ({ ...(body as { title: string }), videoId: request.params.id }),
  }),
)
app.get<VideoRoute>('/videos/:id', async (request, reply) => {
  const { rows } = await db.query(
    `select v.title, v.edit, a.version::text as version from video v
       join waybill.aggregate_version a on a.aggregate_type = 'video' and a.aggregate_id = v.id where v.id = $1`,
    [request.params.id],
  )
  return rows[0] ?? reply.code(404).send({ title: 'There is no such video' })
})
app.get('/metrics', (_request, reply) => reply.type(metrics.contentType).send(metrics.text()))
await app.listen({ port: settings.videoPort, host: '127.0.0.1' })
ready()
try {
  // Counted here too, so that somebody tells when the relay does not run.
  await run([createMarkerCleanup({ db, signals }), createBacklogReport({ db, outbox, signals })], { signal: stopping, signals })
} finally {
  await app.close()
  redis?.disconnect()
  await db.close()
  process.disconnect()
}

/** Never waits for Redis: a command goes on without it. */
function connectRedis(url: string | undefined): Redis | undefined {
  if (url === undefined) return undefined
  const client = new Redis(url, { enableOfflineQueue: false, maxRetriesPerRequest: 0, retryStrategy: () => 200 })
  client.on('error', () => {})
  return client
}
