/**
 * The system that is to be broken: databases, broker and cache, and the four processes that work on them, ready for users.
 *
 * Everything is started at once as far as it can be: processes load their code while Postgres starts.
 */
import { connect, newId, type Connection } from 'waybill'
import { applyProvision, createPubsubAdmin, desiredResources, planProvision } from 'waybill/pubsub'
import { freePort } from 'waybill/testing'
import { Network } from './network.ts'
import { fromSource, ProcessKeeper, processLabels, type ProcessName } from './process-keeper.ts'
import { openCache, openDatabases, placeBroker, type Broker, type Cache, type Databases } from './services.ts'
import type { Settings } from './settings.ts'
import { streams } from './streams.ts'
import { prepareCatalog, prepareVideo } from './tables.ts'
import { tapName } from './tap.ts'
import type { Timeline } from './timeline.ts'

export type Keepers = Readonly<Record<'video' | 'relay' | 'catalog', ProcessKeeper>> & { readonly broker?: ProcessKeeper }

export interface System {
  readonly settings: Settings
  readonly databases: Databases
  readonly broker: Broker
  readonly cache: Cache
  readonly network: Network
  readonly keepers: Keepers
  /** Straight to the databases, past the proxies. */
  readonly video: Connection
  readonly catalog: Connection
  /** The name of a second reader, beside the catalog. */
  readonly tapConsumer: string
  stop(): Promise<void>
}

/** Starts it; `env` may name services that are there already. */
export async function startSystem(env: Readonly<Record<string, string | undefined>>, timeline: Timeline): Promise<System> {
  await using closers = new AsyncDisposableStack()
  const network = new Network(fromSource)
  closers.defer(() => network.stop())
  const given = { projectId: env['PUBSUB_PROJECT_ID'], emulatorHost: env['PUBSUB_EMULATOR_HOST'] }
  const opening = [openDatabases(env['DATABASE_URL'], network), openCache(env['REDIS_URL'])] as const
  // What was started last is stopped first: processes before what they stand on.
  for (const each of opening) closers.defer(() => each.then((service) => service.stop(), nothing))
  const keepers = startProcesses(
    Object.values(given).every((name) => name === undefined),
    timeline,
  )
  closers.defer(async () => void (await Promise.all(Object.values(keepers).map((keeper) => keeper.stop(5_000)))))
  const [databases, cache, broker] = await Promise.all([...opening, placeBroker(given, network)])
  const settings = await settingsOf({ broker, databases, cache })
  const [video, catalog] = [connect({ url: databases.videoUrl }), connect({ url: databases.catalogUrl })]
  closers.defer(async () => void (await Promise.all([video.close(), catalog.close()])))

  const tapConsumer = settings.consumer.replace('catalog', tapName)
  const provisioned = Promise.resolve(keepers.broker?.start(settings)).then(() =>
    provision(broker, [settings.consumer, tapConsumer]),
  )
  await Promise.all([prepareVideo(video), prepareCatalog(catalog), provisioned])
  await Promise.all([keepers.video.start(settings), keepers.relay.start(settings), keepers.catalog.start(settings)])
  const kept = closers.move()
  return { settings, databases, broker, cache, network, keepers, video, catalog, tapConsumer, stop: () => kept.disposeAsync() }
}

/** Where to reach the broker without a proxy in between. */
export function straight({ projectId, emulatorHost }: Broker): { projectId: string; emulatorHost?: string } {
  return { projectId, ...(emulatorHost === undefined ? {} : { emulatorHost }) }
}

/** It was not started, so there is nothing to stop. */
const nothing = (): void => {}

function startProcesses(isBrokerOwn: boolean, timeline: Timeline): Keepers {
  const keep = (name: ProcessName): ProcessKeeper =>
    new ProcessKeeper(name, {
      onBack: ({ pid }, downMs) =>
        timeline.add('recovery', `${processLabels[name]} is back (pid ${pid}) after ${Math.round(downMs)} ms`),
      onFailure: (_keeper, why) => timeline.add('note', `${processLabels[name]} ended and is started again: ${why}`),
    })
  const others = { video: keep('video'), relay: keep('relay'), catalog: keep('catalog') }
  return isBrokerOwn ? { broker: keep('broker'), ...others } : others
}

interface Places {
  readonly broker: Broker
  readonly databases: Databases
  readonly cache: Cache
}

async function settingsOf({ broker, databases, cache }: Places): Promise<Settings> {
  const { proxyPort } = databases
  const through = (url: string): string => (proxyPort === undefined ? url : Object.assign(new URL(url), { port: proxyPort }).href)
  return {
    videoUrl: through(databases.videoUrl),
    catalogUrl: through(databases.catalogUrl),
    projectId: broker.projectId,
    emulatorHost: broker.proxyPort === undefined ? broker.emulatorHost : `127.0.0.1:${broker.proxyPort}`,
    redisUrl: cache.url,
    // A broker that was there before may still hold messages of an earlier run, for readers of the same name.
    consumer: broker.isOwn ? 'catalog' : `catalog-${newId().slice(-8)}`,
    videoPort: await freePort(),
    catalogPort: await freePort(),
    broker: { ...broker.ports, dataDir: databases.scratchDir },
  }
}

async function provision(broker: Broker, readers: readonly string[]): Promise<void> {
  const admin = createPubsubAdmin(straight(broker))
  try {
    const consumers = readers.map((name) => ({ name, streams }))
    await applyProvision(admin, await planProvision(admin, desiredResources({ streams, consumers })))
  } finally {
    await admin.close()
  }
}
