/**
 * The catalog, which follows: it consumes the owner's events into tables of its own and serves reads (`GET /videos/:id`) that are
 * never older than the token the reader shows, from its own table or, if that is behind, from the owner.
 */
import { fastify } from 'fastify'
import { connect, createMetrics, createSignals, readTokenHeader, run } from 'waybill'
import { pubsub } from 'waybill/pubsub'
import { createCatalog } from '../catalog-consumer.ts'
import { videos } from '../streams.ts'
import { connectParent } from './parent.ts'

const { settings, stopping, ready } = await connectParent()
const { projectId, emulatorHost, consumer: name } = settings
const signals = createSignals()
const metrics = createMetrics({ signals })
const db = connect({ url: settings.catalogUrl, applicationName: 'catalog', signals })
const transport = pubsub({ projectId, ...(emulatorHost === undefined ? {} : { emulatorHost }) })
const catalog = createCatalog({ db, transport, name, signals })

const app = fastify({ forceCloseConnections: true })
app.get<{ Params: { id: string } }>('/videos/:id', async (request, reply) => {
  const { id } = request.params
  let servedBy = 'catalog'
  const video = await catalog.read<{ title: string; edit: string; version: unknown }, unknown>(videos, id, {
    atLeast: readTokenHeader(request.headers),
    otherwise: async () => {
      servedBy = 'owner'
      const answer = await fetch(`http://127.0.0.1:${settings.videoPort}/videos/${encodeURIComponent(id)}`)
      if (answer.status >= 500) throw new Error('Neither the catalog nor the owner can answer now.')
      return answer.ok ? await answer.json() : undefined
    },
  })
  reply.header('served-by', servedBy)
  return video ?? reply.code(404).send({ title: 'There is no such video' })
})
app.get('/metrics', (_request, reply) => reply.type(metrics.contentType).send(metrics.text()))
await app.listen({ port: settings.catalogPort, host: '127.0.0.1' })
ready()
try {
  await run([catalog], { signal: stopping, signals })
} finally {
  await app.close()
  await transport.close()
  await db.close()
  process.disconnect()
}
