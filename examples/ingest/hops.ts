/**
 * The whole way as processes of their own: gateway, service, broker, consumer. Each can be killed, and comes back where it was.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect, migrate, type Connection } from 'waybill'
import { eventually, onFreePort, startChild, startPostgres, type Child } from 'waybill/testing'
import { readingTables } from './readings.ts'
import { startBroker } from './start-broker.ts'

export type HopName = 'gateway' | 'service' | 'broker' | 'consumer'

export interface Hops {
  /** Where readings are sent. */
  readonly url: string
  readonly db: Connection
  /** What the broker is. */
  readonly broker: string
  /** The hops that are ours to kill. */
  readonly names: readonly HopName[]
  /** SIGKILL, then a new process in its place. */
  kill(name: HopName): Promise<void>
  stop(): Promise<void>
}

const processes = ['consumer', 'service', 'gateway'] as const

/** Starts everything, on DATABASE_URL where it is set, otherwise on a Postgres that is gone afterwards. */
export async function startHops(): Promise<Hops> {
  const { DATABASE_URL } = process.env
  const postgres = DATABASE_URL === undefined ? await startPostgres() : undefined
  const databaseUrl = DATABASE_URL ?? postgres?.url ?? ''
  const db = connect({ url: databaseUrl })
  await eventually(() => db.query('select 1'))
  await migrate(db, { schema: 'waybill', service: 'readings' })
  await db.query(readingTables)

  const dataDir = await mkdtemp(join(tmpdir(), 'waybill-ingest-'))
  const fromSource = fileURLToPath(new URL('../../scripts/from-source.ts', import.meta.url))
  const common = { NODE_OPTIONS: `--import=${fromSource}`, DATABASE_URL: databaseUrl }
  const broker = await startBroker({ dataDir, env: common })
  const settings = new Map<HopName, Readonly<Record<string, string>>>()
  const children = new Map<HopName, Child>()
  const start = async (name: (typeof processes)[number]): Promise<void> => {
    const env = { ...common, ...broker.env, ...settings.get(name) }
    const child = startChild(new URL(`${name}.ts`, import.meta.url), { env })
    await child.message((message) => message === 'ready')
    children.set(name, child)
  }
  // Whoever comes back does so on the port of its first start.
  const listen = (name: 'service' | 'gateway', env: Readonly<Record<string, string>> = {}): Promise<string> =>
    onFreePort(async (port) => {
      settings.set(name, { ...env, PORT: String(port) })
      await start(name)
      return `http://127.0.0.1:${port}`
    })
  await start('consumer')
  const service = await listen('service')
  const gateway = await listen('gateway', { SERVICE_URL: service })
  return {
    url: `${gateway}/readings`,
    db,
    broker: broker.name,
    names: broker.kill === undefined ? processes : [...processes, 'broker'],
    kill: async (name) => {
      if (name === 'broker') return await broker.kill?.()
      await children.get(name)?.kill()
      await start(name)
    },
    stop: async () => {
      for (const name of processes.toReversed()) await children.get(name)?.kill('SIGTERM')
      await broker.stop()
      await db.close()
      await postgres?.stop('immediate')
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}
