/** What happens when databases, networks and caches fail under load, and when nobody knows whether a COMMIT took effect. */
import { setTimeout as delay } from 'node:timers/promises'
import { ioredisCache } from '../../command/redis-cache.ts'
import { createSignals } from '../../core/signals.ts'
import { connect } from '../../postgres/connect.ts'
import { startFaultProxy } from '../../testing/fault-proxy.ts'
import { isCommitReply, postgresFrames } from '../../testing/postgres-frames.ts'
import { findRedis, startRedis } from '../../testing/redis.ts'
import { Closers } from '../closers.ts'
import type { Drill } from '../drill.ts'
import { createRequests } from '../drill-requests.ts'
import { RedisLink } from '../redis-link.ts'
import { serversOf } from '../servers-of.ts'

const databaseRestart: Drill = {
  name: 'database-restart',
  hazard: 'The database crashes and recovers while relays, consumers and writers are in the middle of transactions.',
  fault: 'PostgreSQL is stopped at once (immediate mode, no checkpoint) under load, and started again.',
  needs: 'servers',
  run: async (stage) => {
    const { postgres } = serversOf(stage.target)
    await stage.start('relay')
    await stage.start('consumer')
    await stage.writeDuring(60, async () => {
      await stage.until(async () => (await stage.effects()) >= 5)
      const before = postgres.pid
      stage.note(`PostgreSQL (pid ${before}) is stopped at once`, 'fault')
      await postgres.restart('immediate')
      if (postgres.pid !== before)
        stage.fired(`PostgreSQL ${before} was stopped in immediate mode; ${postgres.pid} recovered its data`)
    })
  },
}

const networkCut: Drill = {
  name: 'network-cut',
  hazard: 'The network to the database breaks: connections end in the middle of anything, and new ones are refused.',
  fault: 'All connections of relay and consumer to PostgreSQL are cut under load, and new ones refused for 1.5 s.',
  needs: 'servers',
  run: async (stage) => {
    const { postgres } = serversOf(stage.target)
    const proxy = await startFaultProxy({ target: postgres })
    try {
      const url = proxy.url(stage.target.url)
      await stage.start('relay', { url })
      await stage.start('consumer', { url })
      await stage.writeDuring(60, async () => {
        await stage.until(async () => (await stage.effects()) >= 5)
        const { connections } = proxy
        proxy.refuse()
        proxy.cut()
        await stage.until(() => proxy.connections === 0)
        if (connections > 0) stage.fired(`${connections} connections were cut, and new ones refused for 1.5 s`)
      })
      await delay(1_500)
      proxy.heal()
      stage.note('the network is back', 'recovery')
      await stage.until(async () => (await stage.unpublished()) === 0 && (await stage.effects()) >= 60)
      await stage.stopProcesses()
    } finally {
      await proxy.stop()
    }
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
    const db = connect({ url: proxy.url(stage.target.url), max: 4, applicationName: 'drill commands' })
    try {
      const requests = createRequests(stage, { db })
      for (let turn = 0; turn < 10; turn += 1) {
        proxy.arm({ name: `reply ${turn}`, direction: 'toClient', on: { match: isCommitReply }, action: 'cut' })
        await requests.ask(`request-${turn}`)
        await requests.ask(`request-${turn}`)
      }
      const cut = Array.from({ length: 10 }, (_, turn) => proxy.firings(`reply ${turn}`)).reduce((sum, count) => sum + count)
      if (cut === 10) stage.fired(`${cut} answers to COMMIT were swallowed; every request was asked twice and answered as one`)
    } finally {
      await db.close()
      await proxy.stop()
    }
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
    const closers = new Closers()
    try {
      const redis = await startRedis()
      closers.defer(() => redis.stop())
      const link = new RedisLink(redis)
      closers.defer(async () => link.close())
      const signals = createSignals()
      let [replays, failures] = [0, 0]
      signals.on('command.replayed', ({ from }) => void (from === 'cache' && (replays += 1)))
      signals.on('command.cache-failed', () => void (failures += 1))
      const requests = createRequests(stage, { db: stage.world.db, cache: ioredisCache(link), signals })
      const names = (from: number): string[] => Array.from({ length: 10 }, (_, at) => `request-${from + at}`)
      for (const request of [...names(0), ...names(0)]) await requests.ask(request)
      stage.note(`10 requests are asked twice; the cache answers ${replays}`)
      await redis.kill()
      stage.note(`Redis (pid ${redis.pid}) is killed`, 'fault')
      for (const request of [...names(0), ...names(10), ...names(10)]) await requests.ask(request)
      if (replays > 0 && failures > 0)
        stage.fired(
          `Redis had answered ${replays} repeats when it was killed; then ${failures} calls of it failed, and 30 requests were asked without it`,
        )
      const again = await startRedis({ port: redis.port })
      closers.defer(() => again.stop())
      stage.note('Redis is back, and empty', 'recovery')
      for (const request of [...names(0), ...names(10)]) await requests.ask(request)
    } finally {
      await closers.close()
    }
  },
}

export const outageDrills: readonly Drill[] = [databaseRestart, networkCut, commitReplyCut, redisLoss]
