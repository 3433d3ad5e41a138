/**
 * A local server of the real google.pubsub.v1 protocol, for development, tests and drills.
 *
 * Any official client, in any language, uses it through PUBSUB_EMULATOR_HOST. It keeps the promises Google
 * documents, those that Google's own emulator leaves out included. It listens on the loopback interface unless told
 * otherwise, without TLS and without authentication: it is not for production.
 */
import { openAdminEndpoint } from './admin-endpoint.ts'
import { Broker } from './broker/broker.ts'
import type { BrokerStats } from './broker/broker.ts'
import { listenGrpc } from './grpc-server.ts'
import { systemClock } from './model/clock.ts'
import type { Clock } from './model/clock.ts'
import { Faults } from './model/faults.ts'
import type { FaultOptions } from './model/faults.ts'
import { memoryJournal } from './model/journal.ts'
import { seededRandom } from './model/random.ts'
import { PubsubServerError } from './model/server-error.ts'
import { openJournal } from './storage/open-journal.ts'

export interface PubsubServerOptions {
  /** @default 0 (a free port) */
  readonly port?: number
  /** @default '127.0.0.1' */
  readonly host?: string
  /** The port of the admin endpoint, always on the loopback interface. @default 0 (a free port) */
  readonly adminPort?: number
  /** Keeps everything in this folder, so that a restart loses nothing confirmed. @default in memory */
  readonly dataDir?: string
  /** Syncs to the disk before confirming: survives the machine's death, not just the process's. @default false */
  readonly fsync?: boolean
  /** The log is rewritten when it is larger than this and four times its fresh size. @default 64 MiB */
  readonly compactBytes?: number
  /** Faults in force from the start. @default none */
  readonly faults?: FaultOptions
  /** What faults are drawn from. @default 1 */
  readonly seed?: number | string
  /** @default the system's clock */
  readonly clock?: Clock
}

export interface PubsubServer {
  readonly host: string
  readonly port: number
  /** The value for PUBSUB_EMULATOR_HOST. */
  readonly emulatorHost: string
  /** Where faults are switched and statistics read over HTTP. */
  readonly adminUrl: string
  readonly faults: Faults
  stats(): BrokerStats
  /** Ends every open StreamingPull with UNAVAILABLE; returns how many there were. */
  cutStreams(): number
  /** Ends every stream and call, writes what is left to write, and frees ports and folder. */
  stop(): Promise<void>
}

const optionNames = ['port', 'host', 'adminPort', 'dataDir', 'fsync', 'compactBytes', 'faults', 'seed', 'clock']

/** Starts a server; it is ready when the promise resolves. */
export async function startPubsubServer(options: PubsubServerOptions = {}): Promise<PubsubServer> {
  refuseUnknown(options)
  const { port = 0, host = '127.0.0.1', clock = systemClock, seed = 1 } = options
  const faults = new Faults(seededRandom(seed), options.faults)
  const broker = new Broker({ clock, faults, journal: memoryJournal })
  const closers: Array<() => void | Promise<void>> = [() => broker.close()]
  const stop = async (): Promise<void> => {
    for (const close of closers.splice(0).toReversed()) await close()
  }
  try {
    if (options.dataDir !== undefined) {
      const { dataDir, fsync = false, compactBytes = 64 * 1024 * 1024 } = options
      closers.push(await openJournal(broker, { dataDir, fsync, compactBytes }))
    }
    const admin = await openAdminEndpoint(adminOf(broker), options.adminPort ?? 0)
    closers.push(() => admin.close())
    const listener = await listenGrpc(broker, `${host}:${port}`)
    closers.push(() => listener.close())
    broker.startSweeping()
    const emulatorHost = `${host}:${listener.port}`
    return { host, port: listener.port, emulatorHost, adminUrl: admin.url, ...adminOf(broker), stop }
  } catch (error) {
    await stop()
    throw error
  }
}

function adminOf(broker: Broker): Pick<PubsubServer, 'faults' | 'stats' | 'cutStreams'> {
  return { faults: broker.faults, stats: () => broker.stats(), cutStreams: () => broker.cutStreams() }
}

/** A misspelt option that is ignored is a setting that its owner believes in. */
function refuseUnknown(options: object): void {
  const unknown = Object.keys(options).find((name) => !optionNames.includes(name))
  if (unknown === undefined) return
  throw new PubsubServerError(
    'INVALID_OPTION',
    `startPubsubServer.${unknown}: unknown option. Known: ${optionNames.toSorted().join(', ')}.`,
  )
}
