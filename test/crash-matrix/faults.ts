/**
 * What is done to a process, or to what it depends on, while it stands at its place; and the proof that it was done.
 */
import { readFileSync } from 'node:fs'
import type { Pool } from 'pg'
import type { Child } from '../../src/testing/process/child.ts'
import type { CrashMoment } from '../../src/testing/faults/crash-places.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { FaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import type { CellBroker } from './broker.ts'
import { withPool, type Site } from './site.ts'

/** Faults of every place. */
export const faultNames = [
  'SIGKILL',
  'SIGSTOP',
  'database restart',
  'backend terminated',
  'connection cut',
  'broker refusal',
] as const
/** Faults of command servers: nobody else has a connection to Redis. */
export const redisFaultNames = ['redis flush', 'redis stop'] as const
/** Faults of the places on Kafka. */
export const kafkaFaultNames = [...faultNames, 'broker connection cut'] as const
export type FaultName = (typeof kafkaFaultNames)[number] | (typeof redisFaultNames)[number]

export interface FaultScene {
  readonly site: Site
  readonly child: Child
  /** Before the database, for that process. */
  readonly proxy: FaultProxy
  readonly broker: CellBroker
  readonly at: CrashMoment
  /** The cell's database, not through the proxy. */
  readonly url: string
  /** How late the answers are that are to be lost. */
  readonly lateMs: number
}

/** Slows the answers down that are to be lost, so that none of them comes through before the connection is cut. */
export function prepareFault(fault: FaultName, scene: Omit<FaultScene, 'child'>): void {
  proxyOfLostAnswer(fault, scene)?.delay(scene.lateMs, 'toClient')
}

/** Called at once when the process stands at its place: its answer stays where it is. */
export function holdAnswer(fault: FaultName, scene: FaultScene): void {
  proxyOfLostAnswer(fault, scene)?.stall('toClient')
}

/** The proxy at which the answer is lost to a request that is under way, if that is what the cell is about. */
function proxyOfLostAnswer(fault: FaultName, { at, proxy, broker }: Omit<FaultScene, 'child'>): FaultProxy | undefined {
  const isUnderWay = ('when' in at && at.when === 'during') || ('transaction' in at && at.transaction === 'commit-sent')
  if (!isUnderWay) return undefined
  if (fault === 'broker connection cut') return 'kafka' in at ? broker.proxy : undefined
  return fault === 'connection cut' && !('kafka' in at) ? proxy : undefined
}

/** Does it to a process that stands still, and throws unless it happened. */
export async function strike(fault: FaultName, scene: FaultScene): Promise<void> {
  const { site, child, proxy, broker } = scene
  await eventually(() => isStopped(child.pid))
  switch (fault) {
    case 'SIGKILL':
      return assertHappened((await child.kill()).signal === 'SIGKILL', 'the process was killed')
    case 'SIGSTOP':
      return
    case 'database restart': {
      const before = site.postgres.pid
      await answered(scene)
      await site.postgres.restart('immediate')
      return assertHappened(site.postgres.pid !== before, 'the database was restarted')
    }
    case 'backend terminated':
      await answered(scene)
      return assertHappened((await terminate(scene.url)) > 0, 'a backend was terminated')
    case 'connection cut':
      await answered(scene)
      return await cut(proxy, proxyOfLostAnswer(fault, scene) !== undefined)
    case 'redis flush':
      return await flush(site)
    case 'redis stop':
      await site.redis?.kill()
      return assertHappened(site.redis !== undefined && !isRunning(site.redis.pid), 'Redis was stopped')
    case 'broker refusal':
      if (broker.proxy !== undefined) assertHappened(broker.proxy.connections > 0, 'a connection to the broker was there')
      return broker.refuse(true)
    case 'broker connection cut':
      if (broker.proxy === undefined) throw new Error('There is no proxy before the broker.')
      if ('kafka' in scene.at && scene.at.kafka === 'commitOffsets' && scene.at.when === 'during')
        await eventually(async () => (await broker.unacked()) < (await broker.log()).length)
      return await cut(broker.proxy, proxyOfLostAnswer(fault, scene) !== undefined)
  }
}

/** On a busy machine the answer can be quicker than the word that the process stands at its place. Then nothing is shown yet. */
export class AnswerGotThrough extends Error {
  override readonly name: string = 'AnswerGotThrough'

  constructor() {
    super('The answer that was to be lost got through before it could be held.')
  }
}

/** Cuts all connections, where an answer is to be lost once it is there. */
async function cut(proxy: FaultProxy, isAnswerLost: boolean): Promise<void> {
  if (isAnswerLost)
    await eventually(() => proxy.waiting('toClient') > 0, { timeoutMs: 2_000 }).catch(() => {
      throw new AnswerGotThrough()
    })
  assertHappened(proxy.connections > 0, 'a connection was there to be cut')
  proxy.cut()
  proxy.heal()
}

/** What was in the cache is in it no more. */
async function flush({ redis, cache }: Site): Promise<void> {
  const isThere = async (): Promise<boolean> => (await cache.claim('flushed', 'there', { ttlMs: 60_000 })) === 'there'
  // The first time it is put there. A Redis that was just started again may have to be reached first.
  await eventually(isThere)
  assertHappened(redis !== undefined && (await isThere()), 'something was in Redis')
  await redis?.flush()
  assertHappened(!(await isThere()), 'Redis has forgotten it')
}

/** Whatever the process has sent before it stopped has been done: an answer may be lost, and its effect may not. */
async function answered({ url }: FaultScene): Promise<void> {
  await withPool(url, async (pool) => {
    await eventually(async () => (await number(pool, `select count(*)::int as n from ${crashed} and state = 'active'`)) === 0)
  })
}

async function terminate(url: string): Promise<number> {
  return await withPool(url, (pool) =>
    number(pool, `select count(*) filter (where pg_terminate_backend(pid, 60000))::int as n from ${crashed}`),
  )
}

const crashed = `pg_stat_activity where application_name = 'crashed' and datname = current_database()`

async function number(pool: Pool, text: string): Promise<number> {
  return ((await pool.query(text)).rows[0] as { n: number }).n
}

function isStopped(pid: number): boolean {
  if (process.platform !== 'linux') return true
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return stat.slice(stat.lastIndexOf(')') + 2).startsWith('T')
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

function assertHappened(happened: boolean, what: string): void {
  if (!happened) throw new Error(`The fault did not happen: not true that ${what}.`)
}
