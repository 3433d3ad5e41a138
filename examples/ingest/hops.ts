/**
 * The whole way as processes of their own: gateway, service, broker, consumer. Each can be killed, and comes back where it was.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect, migrate, type Connection } from 'waybill'
import { applyProvision, createPubsubAdmin, desiredResources, planProvision } from 'waybill/pubsub'
import { freePort, startChild, startPostgres, type Child } from 'waybill/testing'
import { readings, readingTables } from './readings.ts'

export const hopNames = ['gateway', 'service', 'broker', 'consumer'] as const
export type HopName = (typeof hopNames)[number]

export interface Hops {
  /** Where readings are sent. */
  readonly url: string
  readonly db: Connection
  /** SIGKILL, then a new process in its place. */
  kill(name: HopName): Promise<void>
  stop(): Promise<void>
}

/** Starts everything, on DATABASE_URL where it is set, otherwise on a Postgres that is gone afterwards. */
export async function startHops(): Promise<Hops> {
  const { DATABASE_URL } = process.env
  const postgres = DATABASE_URL === undefined ? await startPostgres() : undefined
  const databaseUrl = DATABASE_URL ?? postgres?.url ?? ''
  const dataDir = await mkdtemp(join(tmpdir(), 'waybill-ingest-'))
  const [gateway, service, broker] = [await freePort(), await freePort(), await freePort()]
  const fromSource = fileURLToPath(new URL('../../scripts/from-source.ts', import.meta.url))
  const common = { NODE_OPTIONS: `--import=${fromSource}`, DATABASE_URL: databaseUrl, BROKER: `127.0.0.1:${broker}` }
  const settings: Readonly<Record<HopName, Readonly<Record<string, string>>>> = {
    gateway: { PORT: String(gateway), SERVICE_URL: `http://127.0.0.1:${service}` },
    service: { PORT: String(service) },
    broker: { PORT: String(broker), DATA_DIR: dataDir },
    consumer: {},
  }
  const start = async (name: HopName): Promise<Child> => {
    const child = startChild(new URL(`${name}.ts`, import.meta.url), { env: { ...common, ...settings[name] } })
    await child.message((message) => message === 'ready')
    return child
  }
  const db = connect({ url: databaseUrl })
  await migrate(db, { schema: 'waybill', service: 'readings' })
  await db.query(readingTables)
  const children = new Map<HopName, Child>([['broker', await start('broker')]])
  await provision(common.BROKER)
  for (const name of ['consumer', 'service', 'gateway'] as const) children.set(name, await start(name))
  return {
    url: `http://127.0.0.1:${gateway}/readings`,
    db,
    kill: async (name) => {
      await children.get(name)?.kill()
      children.set(name, await start(name))
    },
    stop: async () => {
      for (const name of hopNames) await children.get(name)?.kill(name === 'broker' ? 'SIGKILL' : 'SIGTERM')
      await db.close()
      await postgres?.stop('immediate')
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

async function provision(emulatorHost: string): Promise<void> {
  const admin = createPubsubAdmin({ projectId: 'ingest', emulatorHost })
  // A consumer that was killed gives its messages back when their deadline is over: the shortest that there is.
  const consumers = [{ name: 'readings', streams: [readings] }]
  const desired = desiredResources({ streams: [readings], consumers, ackDeadlineSeconds: 10 })
  await applyProvision(admin, await planProvision(admin, desired))
  await admin.close()
}
