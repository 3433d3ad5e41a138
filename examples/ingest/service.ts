/**
 * The service's process: validates a reading, derives its event id, and answers once the broker has confirmed it.
 */
import { fastify } from 'fastify'
import { connect, createIngest } from 'waybill'
import { fastifyIngest } from 'waybill/fastify'
import { readingKey, readings } from './readings.ts'
import { openTransport } from './transport.ts'

const { PORT = '0', DATABASE_URL = '' } = process.env
const db = connect({ url: DATABASE_URL })
const transport = openTransport()
const ingest = createIngest({
  event: readings.ReadingTaken,
  key: readingKey,
  to: transport,
  publishTimeoutMs: 3_000,
  processed: async ({ key: [meter = '', at = ''] }) => {
    const { rowCount } = await db.query('select from reading where meter = $1 and at = $2::text::bigint', [meter, at])
    return rowCount > 0
  },
})
const app = fastify({ bodyLimit: ingest.limits.maxBodyBytes, forceCloseConnections: true })
for (const url of ['/readings', '/readings/*']) app.all(url, fastifyIngest(ingest, { path: '/readings' }))
await app.listen({ port: Number(PORT), host: '127.0.0.1' })
process.send?.('ready')

process.once('SIGTERM', () => void stop())

/** Whoever waits for the broker is answered first. */
async function stop(): Promise<void> {
  await ingest.close(AbortSignal.timeout(5_000))
  await app.close()
  await transport.close()
  await db.close()
  process.disconnect?.()
}
