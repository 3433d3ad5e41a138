/**
 * Where worlds of commands are played: server processes, a real Redis and the way to a real Postgres, all of which can be broken.
 *
 * Servers reach Redis and Postgres through fault proxies, so that a Redis that takes another's place is at the same address.
 * A strike happens while its call waits for it, one after the other, and is counted only if it did happen.
 */
import { startChild, type Child } from '../../src/testing/process/child.ts'
import { startFaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import type { FaultRule } from '../../src/testing/faults/fault-rules.ts'
import { isCommitReply, isCommitRequest, postgresFrames } from '../../src/testing/faults/postgres-frames.ts'
import { startRedis, type Redis } from '../../src/testing/servers/redis.ts'
import type { Answer, Job, Order, Report } from './chaos-server.ts'
import { serverCount, strikeName, type Fault, type Strike } from './chaos-world.ts'
import { redisClients } from './redis-clients.ts'

export interface Site {
  /** Has a server run a job and, if it comes to where it is to be struck, strikes. No answer: the server died. */
  run(server: number, job: Omit<Job, 'id' | 'waitAt'>, strike?: Strike): Promise<{ answer?: Answer; isStruck: boolean }>
  /** Ends all faults; every server is there and has its Redis. */
  heal(): Promise<void>
  /** Takes what Redis remembers. */
  flush(): Promise<void>
  /** How often each strike happened. */
  readonly struck: ReadonlyMap<string, number>
  close(): Promise<void>
}

export interface SiteOptions {
  readonly databaseUrl: string
  /** The mistake that the servers have; see pipeline-variants.ts. */
  readonly mutant?: string
}

const script = new URL('chaos-server.ts', import.meta.url)

export async function openSite({ databaseUrl, mutant }: SiteOptions): Promise<Site> {
  const redis = await openRedis()
  const postgres = await openPostgres(databaseUrl)
  const env = { DATABASE_URL: postgres.url, REDIS_URL: redis.url, ...(mutant === undefined ? {} : { MUTANT: mutant }) }
  const servers = Array.from({ length: serverCount }, (_, index) => startServer(index, env))
  const struck = new Map<string, number>()
  const count = (strike: Strike, times = 1): void =>
    void (times > 0 && struck.set(strikeName(strike), (struck.get(strikeName(strike)) ?? 0) + times))
  let ids = 0
  let last: Promise<unknown> = Promise.resolve()

  const strikeNow = async (server: Server, { at, fault }: Strike): Promise<void> => {
    if (fault === 'a COMMIT is lost' || fault === 'an answer to COMMIT is lost') return postgres.arm({ at, fault })
    if (fault === 'the server is killed') await server.restart()
    else await redis.suffer(fault)
    count({ at, fault })
  }
  /** One at a time: what one breaks another may want to break too. */
  const inTurn = <Result>(work: () => Promise<Result>): Promise<Result> => {
    const turn = last.then(work)
    last = turn.catch(() => undefined)
    return turn
  }
  return {
    struck,
    run: async (index, job, strike) => {
      const server = servers[index] as Server
      const child = await server.ready()
      const id = (ids += 1)
      let striking = Promise.resolve(false)
      const strikeIfThere = async (): Promise<boolean> => {
        // Another's strike may have ended the process while this one waited for its turn.
        if (strike === undefined || !server.is(child)) return false
        try {
          await strikeNow(server, strike)
        } finally {
          child.send({ goOn: id } satisfies Order)
        }
        return true
      }
      said(child, id, 'reached').then(
        () => (striking = inTurn(strikeIfThere)),
        () => undefined,
      )
      child.send({ run: { ...job, id, waitAt: strike?.at } } satisfies Order)
      const report = await said(child, id, 'answer').catch(() => undefined)
      // Whoever comes to its place says so before it answers or dies.
      return { isStruck: await striking, ...(report === undefined ? {} : { answer: report.answer }) }
    },
    heal: async () => {
      await last
      for (const [strike, firings] of postgres.disarm()) count(strike, firings)
      await redis.heal()
      for (const server of servers) {
        const child = await server.ready()
        const id = (ids += 1)
        child.send({ reachRedis: id } satisfies Order)
        await said(child, id, 'hasRedis')
      }
    },
    flush: () => redis.suffer('Redis is flushed'),
    close: async () => {
      await Promise.all(servers.map(({ stop }) => stop()))
      await postgres.close()
      await redis.close()
    },
  }
}

type Said<What extends string> = Extract<Report, Readonly<Record<What, unknown>>>

/** Fails when the child ends without having said it. */
function said<What extends 'reached' | 'hasRedis' | 'answer'>(child: Child, id: number, what: What): Promise<Said<What>> {
  return child.message<Said<What>>((report) => report.id === id && what in report)
}

interface Server {
  /** The process, once it takes jobs. */
  ready(): Promise<Child>
  /** Whether this is the process that runs now. */
  is(child: Child): boolean
  /** Kills it and starts another in its place. */
  restart(): Promise<void>
  stop(): Promise<void>
}

/** Servers take turns in the clients of Redis that they use. */
function startServer(index: number, env: Readonly<Record<string, string>>): Server {
  const clients = Object.keys(redisClients)
  const start = (): { readonly child: Child; readonly ready: Promise<Child> } => {
    const child = startChild(script, { env: { ...env, REDIS_CLIENT: clients[index % clients.length] ?? '' } })
    const ready = child.message((message) => message === 'ready').then(() => child)
    // One that is killed before it is ready is missed only by who asks for it.
    void ready.catch(() => undefined)
    return { child, ready }
  }
  let current = start()
  return {
    ready: () => current.ready,
    is: (child) => current.child === child,
    restart: async () => {
      const dead = current.child.kill()
      current = start()
      await dead
    },
    stop: async () => void (await current.child.kill()),
  }
}

type RedisFault = Extract<Fault, `Redis ${string}`>

/** A Redis behind an address that stays. */
async function openRedis() {
  let redis: Redis = await startRedis()
  let illness: 'killed' | 'frozen' | undefined
  const target = {
    host: redis.host,
    get port() {
      return redis.port
    },
  }
  const door = await startFaultProxy({ target })
  const replace = async (): Promise<void> => {
    const old = redis
    redis = await startRedis()
    door.cut()
    await old.stop()
  }
  const heal = async (): Promise<void> => {
    if (illness === 'frozen') redis.thaw()
    if (illness === 'killed') await replace()
    illness = undefined
  }
  const faults: Readonly<Record<RedisFault, () => Promise<void>>> = {
    'Redis is killed': async () => {
      illness = 'killed'
      await redis.kill()
    },
    'Redis is frozen': async () => {
      illness = 'frozen'
      redis.freeze()
    },
    'Redis is flushed': () => redis.flush(),
    'Redis fails over to an empty one': replace,
  }
  return {
    url: door.url(redis.url),
    heal,
    /** What lasted from before ends, so that there is something to break. */
    suffer: async (fault: RedisFault): Promise<void> => {
      await heal()
      await faults[fault]()
    },
    close: async () => {
      await door.stop()
      await redis.stop()
    },
  }
}

const commitRules: Readonly<Record<'a COMMIT is lost' | 'an answer to COMMIT is lost', Omit<FaultRule, 'name'>>> = {
  'a COMMIT is lost': { direction: 'toServer', on: { match: isCommitRequest }, action: 'cut' },
  'an answer to COMMIT is lost': { direction: 'toClient', on: { match: isCommitReply }, action: 'cut' },
}

/** The way to Postgres, on which COMMITs and their answers may be lost. */
async function openPostgres(databaseUrl: string) {
  const { hostname: host, port } = new URL(databaseUrl)
  const door = await startFaultProxy({ target: { host, port: Number(port) }, frames: postgresFrames })
  const armed = new Map<string, Strike>()
  let rules = 0
  return {
    url: door.url(databaseUrl),
    arm: (strike: Strike & { readonly fault: keyof typeof commitRules }): void => {
      const name = `rule ${(rules += 1)}`
      armed.set(name, strike)
      door.arm({ name, ...commitRules[strike.fault] })
    },
    /** Takes all rules away, and tells how often each fired. */
    disarm: (): readonly (readonly [Strike, number])[] => {
      const firings = [...armed].map(([name, strike]) => {
        door.disarm(name)
        return [strike, door.firings(name)] as const
      })
      armed.clear()
      return firings
    },
    close: () => door.stop(),
  }
}
