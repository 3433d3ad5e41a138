/**
 * Starts the game: `npm run example -- game`.
 *
 * Uses DATABASE_URL and REDIS_URL where they are set; otherwise a Postgres of its own that is gone afterwards, with a broker and a
 * leaderboard that follows the players beside it, and a cache in this process. Prints where it listens, and stops on Ctrl-C.
 */
import { Redis } from 'ioredis'
import { connect, createMarkerCleanup, createSignals, ioredisCache, memoryCache, run } from 'waybill'
import { startPostgres } from 'waybill/testing'
import { startNeighbours } from './neighbours.ts'
import { createGame, prepareGame } from './server.ts'
import { stopSignal } from './stop-signal.ts'

const { DATABASE_URL, REDIS_URL, PORT = '0' } = process.env
const stopping = stopSignal()

const postgres = DATABASE_URL === undefined ? await startPostgres() : undefined
const signals = createSignals()
const db = connect({ url: DATABASE_URL ?? postgres?.url ?? '', signals })
const redis = REDIS_URL === undefined ? undefined : new Redis(REDIS_URL, { enableOfflineQueue: false, maxRetriesPerRequest: 0 })
redis?.on('error', () => {})
await prepareGame(db)
const leaderboardUrl = await postgres?.createDatabase('leaderboard')
const neighbours = leaderboardUrl === undefined ? undefined : await startNeighbours({ game: db, leaderboardUrl, signals })
const app = createGame({ db, signals, cache: redis === undefined ? memoryCache() : ioredisCache(redis) })
if (neighbours !== undefined) app.get('/standings', () => neighbours.standings())
const url = await app.listen({ port: Number(PORT), host: '127.0.0.1' })
process.stdout.write(`The game listens on ${url}\n`)
process.stdout.write(
  `  curl -X POST ${url}/players -H 'x-player: ann' -H 'idempotency-key: 1' -H 'content-type: application/json' -d '{"playerId":"ann","name":"Ann"}'\n`,
)
if (neighbours !== undefined)
  process.stdout.write(
    `Where a request went, from its command to the leaderboard:
  export DATABASE_URL=${postgres?.url} LEADERBOARD_URL=${leaderboardUrl}
  npx node --import ./scripts/from-source.ts src/cli/main.ts trace 1 --principal ann --config examples/game/waybill.config.ts --also examples/game/leaderboard.config.ts\n`,
  )
process.send?.({ url, databaseUrl: postgres?.url, leaderboardUrl })
try {
  await run([createMarkerCleanup({ db, signals }), ...(neighbours?.services ?? [])], { signal: stopping, signals })
} finally {
  await app.close()
  redis?.disconnect()
  await neighbours?.close()
  await db.close()
  await postgres?.stop()
}
