/**
 * The catalog, which follows: it consumes the owner's events into tables of its own and serves reads (`GET /videos/:id`) that are
 * never older than the token the reader shows, from its own table or, if that is behind, from the owner.
 */
import { fastify } from 'fastify'
import { connect, createConsumer, readTokenHeader, run, type ConsumedEvent, type HandlerContext } from 'waybill'
import { pubsub } from 'waybill/pubsub'
import { deliveryLeaseMs } from '../settings.ts'
import { players, streams, videos } from '../streams.ts'
import { connectParent } from './parent.ts'

const { settings, stopping, ready } = await connectParent()
const { projectId, emulatorHost, consumer: name } = settings
const db = connect({ url: settings.catalogUrl, applicationName: 'catalog' })
const transport = pubsub({ projectId, leaseMs: deliveryLeaseMs, ...(emulatorHost === undefined ? {} : { emulatorHost }) })
const catalog = createConsumer({ db, transport, name, streams })

async function takeEffect({ id, aggregateType, aggregateId, version }: ConsumedEvent, { tx }: HandlerContext): Promise<void> {
  await tx.query(
    `insert into effect (event_id, aggregate_type, aggregate_id, version) values ($1::text::uuid, $2, $3, $4::text::bigint)`,
    [id, aggregateType, aggregateId, String(version)],
  )
}
catalog.project(videos, {
  table: 'public.catalog_video',
  key: 'video_id',
  set: ({ data }) => ({ title: data.title, edit: data.edit }),
})
catalog.project(players, {
  table: 'public.catalog_player',
  key: 'player_id',
  set: ({ data }) => ({ resources: data.resources }),
})
catalog.on(videos.VideoPublished, takeEffect)
catalog.on(players.PlayerChanged, takeEffect)

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
await app.listen({ port: settings.catalogPort, host: '127.0.0.1' })
ready()
try {
  await run([catalog], { signal: stopping })
} finally {
  await app.close()
  await transport.close()
  await db.close()
  process.disconnect()
}
