/**
 * Plays the game while everything breaks, then checks the books: `npm run example -- game chaos`.
 *
 * Three server processes share a Postgres behind a proxy and, where the machine has one, a Redis. Clients repeat every request until
 * it is answered, and some of them again after that. Servers are killed, connections cut, answers to COMMIT lost, Redis flushed.
 * Exits with 1 and says why if anything does not agree.
 */
import { isDeepStrictEqual } from 'node:util'
import { fileURLToPath } from 'node:url'
import { connect, seededRandom } from 'waybill'
import {
  findRedis,
  isCommitReply,
  postgresFrames,
  startChild,
  startFaultProxy,
  startPostgres,
  startRedis,
  type Child,
} from 'waybill/testing'
import { bookedLoot, checkBooks } from './books.ts'
import { prepareGame } from './server.ts'

const rounds = Number(process.env['GAME_ROUNDS'] ?? 12)
const random = seededRandom(process.env['GAME_SEED'] ?? 7)
const pick = <T>(from: readonly T[]): T => from[Math.floor(random.next() * from.length)] as T
const say = (line: string): void => void process.stdout.write(`${line}\n`)

const postgres = await startPostgres()
const address = new URL(postgres.url)
const proxy = await startFaultProxy({ target: { host: address.hostname, port: Number(address.port) }, frames: postgresFrames })
const redis = findRedis() === undefined ? undefined : await startRedis()
const db = connect({ url: postgres.url })
await prepareGame(db)

interface Server {
  readonly child: Child
  readonly url: string
}

async function startServer(): Promise<Server> {
  const env = { DATABASE_URL: proxy.url(postgres.url), ...(redis === undefined ? {} : { REDIS_URL: redis.url }) }
  const main = new URL('main.ts', import.meta.url)
  const fromSource = fileURLToPath(new URL('../../scripts/from-source.ts', import.meta.url))
  const child = startChild(main, { env: { ...env, NODE_OPTIONS: `--import=${fromSource}` } })
  const { url } = await child.message<{ url: string }>((message) => typeof message?.url === 'string')
  return { child, url }
}

const servers = await Promise.all([startServer(), startServer(), startServer()])
const party = ['ann', 'bob', 'cat', 'dan']
const loot = new Map<string, unknown>()
const problems: string[] = []
const counts = new Map<string, number>()
let requests = 0
let armed = 0

/** Sends a request until it is answered for good, as a client does; the key stays the same. */
async function insist(path: string, player: string, body: object): Promise<void> {
  const key = `request-${(requests += 1)}`
  for (let repeats = random.next() < 0.3 ? 2 : 1; repeats > 0; repeats -= 1) {
    const { status, answer } = await untilAnswered(path, { key, player, body })
    const outcome =
      status === 200
        ? path
        : `${status} ${String((answer as { reason?: string; code?: string }).reason ?? (answer as { code?: string }).code)}`
    counts.set(outcome, (counts.get(outcome) ?? 0) + 1)
    if (status >= 500) problems.push(`${key} ${path} was answered with ${status}: ${JSON.stringify(answer)}`)
    if (path !== '/use-item' || status !== 200) continue
    const drawn = (answer as { loot: unknown }).loot
    if (loot.has(key) && !isDeepStrictEqual(loot.get(key), drawn)) problems.push(`${key}: a repeat drew other loot`)
    loot.set(key, drawn)
  }
}

async function untilAnswered(
  path: string,
  { key, player, body }: { readonly key: string; readonly player: string; readonly body: object },
): Promise<{ readonly status: number; readonly answer: unknown }> {
  for (;;) {
    try {
      const headers = { 'content-type': 'application/json', 'idempotency-key': `"${key}"`, 'x-player': player }
      const response = await fetch(`${pick(servers).url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) })
      const answer: unknown = await response.json()
      if ((answer as { retryable?: boolean }).retryable !== true) return { status: response.status, answer }
    } catch {
      // Nobody answered: the same request again, to whoever lives.
    }
    await new Promise((done) => setTimeout(done, 20))
  }
}

const faults: Readonly<Record<string, () => Promise<void>>> = {
  'a server is killed': async () => {
    const index = Math.floor(random.next() * servers.length)
    await servers[index]?.child.kill()
    servers[index] = await startServer()
  },
  'connections are cut': async () => proxy.cut(),
  'answers to COMMIT are lost': async () =>
    proxy.arm({
      name: `lost ${(armed += 1)}`,
      direction: 'toClient',
      on: { match: isCommitReply },
      action: 'cut',
      times: 3,
    }),
  'Redis is flushed': async () => await redis?.flush(),
}

async function play(): Promise<void> {
  const player = pick(party)
  const moves: readonly (() => Promise<void>)[] = [
    () => insist('/use-item', player, { playerId: player, item: 'wooden-chest' }),
    () => insist('/unlock-hero-stage', player, { playerId: player, hero: pick(['mage', 'knight']) }),
    () => insist('/teach', player, { playerId: player, hero: 'mage', skill: `skill-${Math.floor(random.next() * 20)}` }),
    () => insist('/clear-dungeon', player, { dungeon: 'cave', party: [...party].sort(() => random.next() - 0.5).slice(0, 3) }),
    () =>
      insist(
        '/grant-to-many',
        'admin',
        party.map((playerId, place) => ({
          input: { playerId, items: [{ name: 'wooden-chest', amount: 1, source: 'event' }] },
          metadata: { place: String(place) },
        })),
      ),
  ]
  await pick(moves)()
}

for (const playerId of party) await insist('/players', playerId, { playerId, name: playerId })
for (let round = 1; round <= rounds; round += 1) {
  const name = pick(Object.keys(faults))
  const moves = Promise.all(Array.from({ length: 12 }, play))
  await faults[name]?.()
  await moves
  say(`round ${round} of ${rounds}: ${name}`)
}

problems.push(...(await checkBooks(db)))
for (const [key, drawn] of loot) {
  if (!isDeepStrictEqual(await bookedLoot(db, key), drawn))
    problems.push(`${key}: the loot that was booked is not what was planned`)
}
say([...counts].map(([outcome, count]) => `  ${String(count).padStart(5)}  ${outcome}`).join('\n'))
say(problems.length === 0 ? `The books agree: ${requests} requests, ${loot.size} chests.` : problems.join('\n'))
process.exitCode = problems.length === 0 ? 0 : 1

await Promise.all(servers.map(({ child }) => child.kill()))
await db.close()
await redis?.stop()
await proxy.stop()
await postgres.stop('immediate')
