/**
 * Starts the game: `npm run example -- game`.
 *
 * Uses DATABASE_URL and REDIS_URL where they are set; otherwise a Postgres of its own that is gone afterwards, and a cache in this
 * process. Prints where it listens, and stops on Ctrl-C.
 */
import { Redis } from 'ioredis'
import { connect, createMarkerCleanup, createSignals, ioredisCache, memoryCache, run } from 'waybill'
import { startPostgres } from 'waybill/testing'
import { createGame, prepareGame } from './server.ts'

const { DATABASE_URL, REDIS_URL, PORT = '0' } = process.env
const stop = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort())

const postgres = DATABASE_URL === undefined ? await startPostgres() : undefined
const signals = createSignals()
const db = connect({ url: DATABASE_URL ?? postgres?.url ?? '', signals })
const redis = REDIS_URL === undefined ? undefined : new Redis(REDIS_URL, { enableOfflineQueue: false, maxRetriesPerRequest: 0 })
redis?.on('error', () => {})
await prepareGame(db)
const app = createGame({ db, signals, cache: redis === undefined ? memoryCache() : ioredisCache(redis) })
const url = await app.listen({ port: Number(PORT), host: '127.0.0.1' })
process.stdout.write(`The game listens on ${url}\n`)
process.stdout.write(
  `  curl -X POST ${url}/players -H 'x-player: ann' -H 'idempotency-key: 1' -H 'content-type: application/json' -d '{"playerId":"ann","name":"Ann"}'\n`,
)
process.send?.({ url })
try {
  await run([createMarkerCleanup({ db, signals })], { signal: stop.signal, signals })
} finally {
  await app.close()
  redis?.disconnect()
  await db.close()
  await postgres?.stop()
}
