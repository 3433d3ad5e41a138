/** What happens when databases, networks and caches fail under load, and when nobody knows whether a COMMIT took effect. */
import { setTimeout as delay } from 'node:timers/promises'
import { ioredisCache } from '../../command/cache/redis.ts'
import { createSignals } from '../../core/signals.ts'
import { connect } from '../../postgres/connect.ts'
import { startFaultProxy } from '../../testing/faults/fault-proxy.ts'
import { isCommitReply, postgresFrames } from '../../testing/faults/postgres-frames.ts'
import { findRedis, startRedis } from '../../testing/servers/redis.ts'
import type { Drill } from '../stage/drill.ts'
import { createRequests, type Requests } from '../stage/requests.ts'
import { RedisLink } from '../stage/redis-link.ts'
import { serversOf } from '../target/target.ts'
import type { Stage } from '../stage/stage.ts'

/** As many are committed after a fault before it counts as one under load. */
const more = 20

const databaseRestart: Drill = {
  name: 'database-restart',
  hazard: 'The database crashes and recovers while relays, consumers and writers are in the middle of transactions.',
  fault: 'PostgreSQL is stopped at once (immediate mode, no checkpoint) under load, and started again.',
  needs: 'servers',
  run: async (stage) => {
    const { postgres } = serversOf(stage.target)
    await stage.start('relay')
    await stage.start('consumer')
    await stage.writeDuring(async (committed) => {
      const load = await underLoad(stage, committed)
      const before = postgres.pid
      stage.note(`PostgreSQL (pid ${before}) is stopped at once`, 'fault')
      await postgres.restart('immediate')
      const back = committed()
      await stage.until(() => committed() >= back + more)
      if (postgres.pid !== before)
        stage.fired(
          `PostgreSQL ${before} was stopped in immediate mode with ${load}; ${postgres.pid} recovered its data, and deposits went on`,
        )
    })
  },
}

const networkCut: Drill = {
  name: 'network-cut',
  hazard: 'The network to the database breaks: connections end in the middle of anything, and new ones are refused.',
  fault: 'All connections of relay and consumer to PostgreSQL are cut under load, and new ones refused for 1.5 s or more.',
  needs: 'servers',
  run: async (stage) => {
    const { postgres } = serversOf(stage.target)
    const proxy = await startFaultProxy({ target: postgres })
    stage.defer(() => proxy.stop())
    const url = proxy.url(stage.target.url)
    await stage.start('relay', { url })
    await stage.start('consumer', { url })
    await stage.writeDuring(async (committed) => {
      const load = await underLoad(stage, committed)
      const { connections } = proxy
      proxy.refuse()
      proxy.cut()
      await stage.until(() => proxy.connections === 0)
      const cut = committed()
      stage.note(`${connections} connections are cut`, 'fault')
      const cutMs = performance.now()
      await delay(1_500)
      // The writers may have stood still all that time: the network is back when it was missed.
      let waiting = 0
      await stage.until(async () => {
        waiting = await stage.unpublished()
        return waiting > 0 && committed() > cut
      })
      const meanwhile = committed() - cut
      const seconds = Math.round((performance.now() - cutMs) / 100) / 10
      proxy.heal()
      stage.note('the network is back', 'recovery')
      const back = committed()
      await stage.until(() => committed() >= back + more)
      if (connections > 0)
        stage.fired(
          `${connections} connections were cut with ${load}, and new ones refused for ${seconds} s; ${meanwhile} deposits were committed meanwhile, and ${waiting} events waited in the outbox`,
        )
    })
  },
}

const commitReplyCut: Drill = {
  name: 'commit-reply-cut',
  hazard:
    'The connection breaks between COMMIT and its answer. Taken for a failure, the command runs twice; taken for a success, perhaps never.',
  fault: 'The answer to the COMMIT of ten commands is swallowed and their connection cut; each client then repeats its request.',
  needs: 'servers',
  run: async (stage) => {
    const { postgres } = serversOf(stage.target)
    await stage.start('relay')
    await stage.start('consumer')
    const proxy = await startFaultProxy({ target: postgres, frames: postgresFrames })
    stage.defer(() => proxy.stop())
    const db = connect({ url: proxy.url(stage.target.url), max: 4, applicationName: 'drill commands' })
    stage.defer(() => db.close())
    const requests = createRequests(stage, { db })
    for (let turn = 0; turn < 10; turn += 1) {
      proxy.arm({ name: `reply ${turn}`, direction: 'toClient', on: { match: isCommitReply }, action: 'cut' })
      await requests.ask(`request-${turn}`)
      await requests.succeed([`request-${turn}`])
    }
    const cut = Array.from({ length: 10 }, (_, turn) => proxy.firings(`reply ${turn}`)).reduce((sum, count) => sum + count)
    if (cut === 10) stage.fired(`${cut} answers to COMMIT were swallowed; every request was asked twice and answered as one`)
  },
}

const redisLoss: Drill = {
  name: 'redis-loss',
  hazard: 'The cache of the commands dies and comes back empty. Whoever trusted it would run requests again.',
  fault: 'Redis is killed (SIGKILL) while requests are asked and repeated, and started again with nothing in it.',
  needs: 'servers',
  missing: () =>
    findRedis() === undefined ? 'There is no redis-server on this machine. Install it: apt-get install redis-server.' : undefined,
  run: async (stage) => {
    await stage.start('relay')
    await stage.start('consumer')
    const redis = await startRedis()
    stage.defer(() => redis.stop())
    const link = new RedisLink(redis)
    stage.defer(async () => link.close())
    const signals = createSignals()
    let [replays, failures] = [0, 0]
    signals.on('command.replayed', ({ from }) => void (from === 'cache' && (replays += 1)))
    signals.on('command.cache-failed', () => void (failures += 1))
    const requests = createRequests(stage, { db: stage.world.db, cache: ioredisCache(link), signals })
    const names = (from: number): string[] => Array.from({ length: 10 }, (_, at) => `request-${from + at}`)
    await requests.succeed([...names(0), ...names(0)])
    await whilePassedOver(requests, names(0), () => replays === 0)
    stage.note(`10 requests are asked again; the cache answers ${replays}`)
    const before = failures
    await redis.kill()
    stage.note(`Redis (pid ${redis.pid}) is killed`, 'fault')
    await requests.succeed([...names(0), ...names(10), ...names(10)])
    await whilePassedOver(requests, names(0), () => failures === before)
    if (replays > 0 && failures > before)
      stage.fired(
        `Redis had answered ${replays} repeats when it was killed; then ${failures - before} calls of it failed, and 30 requests or more were answered without it`,
      )
    const again = await startRedis({ port: redis.port })
    stage.defer(() => again.stop())
    stage.note('Redis is back, and empty', 'recovery')
    await requests.succeed([...names(0), ...names(10)])
  },
}

/** A cache that was late once is passed over for some seconds. Asks again, for a while, until it was in use. */
async function whilePassedOver(requests: Requests, names: readonly string[], isPassedOver: () => boolean): Promise<void> {
  for (let turn = 0; turn < 100 && isPassedOver(); turn += 1) {
    await delay(200)
    await requests.succeed(names)
  }
}

/** Waits until some deposits are applied and others are committed and not: a fault then strikes in the middle of the work. */
async function underLoad(stage: Stage, committed: () => number): Promise<string> {
  let [written, applied] = [0, 0]
  await stage.until(async () => {
    written = committed()
    applied = await stage.effects()
    return applied >= 5 && applied < written
  })
  return `${written} deposits committed and ${applied} of them applied`
}

export const outageDrills: readonly Drill[] = [databaseRestart, networkCut, commitReplyCut, redisLoss]
