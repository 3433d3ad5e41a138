/**
 * What is done to a process, or to what it depends on, while it stands at its place; and the proof that it was done.
 */
import { readFileSync } from 'node:fs'
import type { Child } from '../../src/testing/child.ts'
import { eventually } from '../../src/testing/eventually.ts'
import type { FaultProxy } from '../../src/testing/fault-proxy.ts'
import type { CellBroker } from './broker.ts'
import { openPool, type Site } from './site.ts'

export const faultNames = [
  'SIGKILL',
  'SIGSTOP',
  'database restart',
  'backend terminated',
  'connection cut',
  'redis flush',
  'broker refusal',
] as const
export type FaultName = (typeof faultNames)[number]

export interface FaultScene {
  readonly site: Site
  readonly child: Child
  readonly proxy: FaultProxy
  readonly broker: CellBroker
  /** The cell's database, not through the proxy. */
  readonly url: string
}

/** Does it to a process that stands still, and throws unless it happened. */
export async function strike(fault: FaultName, scene: FaultScene): Promise<void> {
  const { site, child, proxy, broker } = scene
  await eventually(() => isStopped(child.pid), { timeoutMs: 5_000 })
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
      assertHappened(proxy.connections > 0, 'a connection was there to be cut')
      return proxy.cut()
    case 'redis flush':
      return await site.redis.flush()
    case 'broker refusal':
      return broker.refuse(true)
  }
}

/** Whatever the process has sent before it stopped has been done: an answer may be lost, and its effect may not. */
async function answered({ url }: FaultScene): Promise<void> {
  await withPool(url, async (query) => {
    await eventually(async () => (await query(`select count(*)::int as n from ${crashed} and state = 'active'`)) === 0, {
      timeoutMs: 5_000,
    })
  })
}

async function terminate(url: string): Promise<number> {
  return await withPool(url, (query) =>
    query(`select count(*) filter (where pg_terminate_backend(pid, 5000))::int as n from ${crashed}`),
  )
}

const crashed = `pg_stat_activity where application_name = 'crashed' and datname = current_database()`

async function withPool<Result>(
  url: string,
  work: (query: (text: string) => Promise<number>) => Promise<Result>,
): Promise<Result> {
  const pool = openPool(url)
  try {
    return await work(async (text) => ((await pool.query(text)).rows[0] as { n: number }).n)
  } finally {
    await pool.end()
  }
}

function isStopped(pid: number): boolean {
  if (process.platform !== 'linux') return true
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return stat.slice(stat.lastIndexOf(')') + 2).startsWith('T')
}

function assertHappened(happened: boolean, what: string): void {
  if (!happened) throw new Error(`The fault did not happen: not true that ${what}.`)
}
