/**
 * A real PostgreSQL for tests, benches and demos, started in a fraction of a second and gone without a trace.
 *
 * It listens on the loopback interface only, on a free port, and runs from a private copy of a template cluster.
 * `stop` removes its files; a parent that dies, however it dies, takes the server with it. By default a crash of the
 * machine may lose data, a crash of the server (`stop('immediate')`, `restart('immediate')`) may not.
 */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chownSync, closeSync, openSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'

import { WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import { cacheFolder, temporaryFolder } from '../process/cache-folder.ts'
import { eventually } from '../kit/eventually.ts'
import { onFreePort } from '../process/free-port.ts'
import { embeddedBinaries } from './postgres-binaries.ts'
import { createCluster } from './postgres-cluster.ts'
import { serviceUser } from '../process/service-user.ts'
import { execute } from './test-database.ts'
import { startWatchdog } from '../process/watchdog.ts'

/** What kind of server to start. */
export interface PostgresOptions {
  /** The folder of an installed PostgreSQL's programs, instead of the one from npm. */
  readonly binDir?: string
  /** Flushes to disk as in production, so that durations mean something. @default false */
  readonly durable?: boolean
  /** Writes enough into the log for logical decoding. @default false */
  readonly logical?: boolean
  /** Further server settings by name. @default {} */
  readonly settings?: Readonly<Record<string, string>>
  /** A free port is chosen unless one is named. */
  readonly port?: number
  /** Where healed binaries and template clusters are kept. @default the user's cache folder */
  readonly cacheDir?: string
  /** The folder of npm's platform package. @default wherever it is installed */
  readonly packageDir?: string
}

/** `fast` disconnects everybody and shuts down in order; `immediate` is a crash that the next start recovers from. */
export type StopMode = 'fast' | 'immediate'

/** A running server. */
export interface Postgres {
  /** The database `postgres`, as superuser. */
  readonly url: string
  readonly host: string
  readonly port: number
  readonly version: string
  readonly dataDir: string
  readonly logFile: string
  /** The server's process; another after a restart. */
  readonly pid: number
  /** The address of a database of this server. */
  urlOf(database: string): string
  /** Makes a database, with a name of its own unless one is given, and returns its address. */
  createDatabase(name?: string, options?: { readonly template?: string }): Promise<string>
  /** Removes a database, given by name or address, and whoever is connected to it. */
  dropDatabase(nameOrUrl: string): Promise<void>
  /** Stops the server and starts it again on the same data and port. */
  restart(mode?: StopMode): Promise<void>
  /** Stops the server and removes its files. */
  stop(mode?: StopMode): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

const optionNames = ['binDir', 'durable', 'logical', 'settings', 'port', 'cacheDir', 'packageDir']
const host = '127.0.0.1'

/** Starts a PostgreSQL of its own and returns when it accepts connections. */
export async function startPostgres(options: PostgresOptions = {}): Promise<Postgres> {
  refuseUnknown('startPostgres', options, optionNames)
  const user = serviceUser()
  const cacheDir = options.cacheDir ?? cacheFolder()
  const binDir = options.binDir ?? (await embeddedBinaries(cacheDir, options.packageDir))
  const folder = temporaryFolder('waybill-postgres-')
  if (user !== undefined) chownSync(folder, user.uid, user.gid)
  const watchdog = startWatchdog({ folders: [folder], signal: 'QUIT', user })
  const dataDir = join(folder, 'data')
  const logFile = join(folder, 'server.log')
  const start = (port: number): Promise<ChildProcess> =>
    launch({
      program: join(binDir, 'postgres'),
      dataDir,
      logFile,
      arguments: serverArguments(options, port),
      spawnOptions: { ...user },
      onSpawn: (server) => watchdog.watch(server),
    })

  const clean = async (): Promise<void> => {
    watchdog.dismiss()
    await rm(folder, { recursive: true, force: true })
  }
  try {
    const version = await createCluster({ binDir, cacheDir, user }, dataDir)
    const startOn = async (port: number): Promise<Pick<Parts, 'port' | 'server'>> => ({ port, server: await start(port) })
    const { port, server } = await (options.port === undefined ? onFreePort(startOn) : startOn(options.port))
    return handle({ port, version, dataDir, logFile, server, start: () => start(port), clean })
  } catch (error) {
    await clean()
    throw error
  }
}

interface Parts extends Pick<Postgres, 'port' | 'version' | 'dataDir' | 'logFile'> {
  server: ChildProcess
  start(): Promise<ChildProcess>
  clean(): Promise<void>
}

function handle(parts: Parts): Postgres {
  const { port, version, dataDir, logFile } = parts
  let stopped: Promise<void> | undefined
  const urlOf = (database: string): string => `postgres://postgres@${host}:${port}/${encodeURIComponent(database)}`
  const stop = (mode: StopMode = 'fast'): Promise<void> => (stopped ??= end(parts.server, mode).then(() => parts.clean()))
  return {
    url: urlOf('postgres'),
    host,
    port,
    version,
    dataDir,
    logFile,
    urlOf,
    stop,
    get pid() {
      return parts.server.pid ?? 0
    },
    async createDatabase(name = `test_${randomBytes(6).toString('hex')}`, { template = 'template0' } = {}) {
      await execute(urlOf('postgres'), `create database ${quoted(name)} template ${quoted(template)}`)
      return urlOf(name)
    },
    async dropDatabase(nameOrUrl) {
      const name = nameOrUrl.includes('://') ? decodeURIComponent(new URL(nameOrUrl).pathname.slice(1)) : nameOrUrl
      await execute(urlOf('postgres'), `drop database if exists ${quoted(name)} with (force)`)
    },
    async restart(mode = 'fast') {
      await end(parts.server, mode)
      parts.server = await parts.start()
    },
    [Symbol.asyncDispose]: () => stop(),
  }
}

function serverArguments(options: PostgresOptions, port: number): string[] {
  const durable = options.durable ?? false
  const settings: Record<string, string> = {
    listen_addresses: host,
    port: String(port),
    unix_socket_directories: '',
    max_connections: '200',
    timezone: 'UTC',
    log_timezone: 'UTC',
    ...(durable ? {} : { fsync: 'off', full_page_writes: 'off' }),
    ...(options.logical ? { wal_level: 'logical' } : {}),
    ...options.settings,
  }
  return Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
}

interface Launch {
  readonly program: string
  readonly dataDir: string
  readonly logFile: string
  readonly arguments: string[]
  readonly spawnOptions: { uid?: number; gid?: number }
  readonly onSpawn: (server: ChildProcess) => void
}

async function launch({ program, dataDir, logFile, arguments: settings, spawnOptions, onSpawn }: Launch): Promise<ChildProcess> {
  // A file, not a pipe: a pipe that a busy parent does not read would block the server.
  const output = openSync(logFile, 'a')
  const server = spawn(program, ['-D', dataDir, ...settings], {
    ...spawnOptions,
    cwd: dataDir,
    detached: true,
    stdio: ['ignore', output, output],
  })
  closeSync(output)
  if (server.pid === undefined) throw (await once(server, 'error'))[0]
  onSpawn(server)
  // A parent that forgot to stop the server can still exit; the watchdog ends the server then.
  server.unref()
  try {
    await eventually(() => hasEnded(server) || isReady(server, dataDir), { timeoutMs: 60_000, intervalMs: 5 })
  } finally {
    if (!isReady(server, dataDir)) server.kill('SIGKILL')
  }
  if (hasEnded(server)) {
    const log = readFileSync(logFile, 'utf8').slice(-2_000)
    throw new WaybillError('UNAVAILABLE', `PostgreSQL did not start (${program}). The end of its log:\n${log}`)
  }
  return server
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null
}

/** The server keeps its process id in the first line of this file and its state in the eighth. */
function isReady({ pid }: ChildProcess, dataDir: string): boolean {
  const status = statusFile(dataDir)
  return status[7]?.trim() === 'ready' && Number(status[0]) === pid
}

function statusFile(dataDir: string): string[] {
  try {
    return readFileSync(join(dataDir, 'postmaster.pid'), 'utf8').split('\n')
  } catch {
    return []
  }
}

async function end(server: ChildProcess, mode: StopMode): Promise<void> {
  if (hasEnded(server)) return
  const exited = once(server, 'exit')
  server.ref()
  // A frozen server would not hear the next signal.
  server.kill('SIGCONT')
  server.kill(mode === 'fast' ? 'SIGINT' : 'SIGQUIT')
  const impatience = setTimeout(() => server.kill('SIGQUIT'), 15_000)
  await exited
  clearTimeout(impatience)
}

function quoted(identifier: string): string {
  return `"${identifier.replaceAll('"', '""')}"`
}
