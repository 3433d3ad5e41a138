/**
 * What the demo stands on: Postgres, a Pub/Sub broker and, where there is one, Redis. Its own, unless the environment names others.
 *
 *   DATABASE_URL                                   a server on which it may create (and afterwards drop) two databases
 *   PUBSUB_PROJECT_ID and PUBSUB_EMULATOR_HOST     a project, at Google if no emulator is named
 *   REDIS_URL                                      a Redis for the commands' cache
 *
 * What it started itself stands behind a fault proxy, so that the network can be cut; what it was given is never harmed.
 */
import { randomBytes } from 'node:crypto'
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { connect } from 'waybill'
import { findRedis, freePort, startPostgres, startRedis, type Redis } from 'waybill/testing'
import type { Network } from './network.ts'

/** Two databases, straight and through the proxy. */
export interface Databases {
  readonly isOwn: boolean
  readonly videoUrl: string
  readonly catalogUrl: string
  /** `undefined` where nothing stands in between. */
  readonly proxyPort: number | undefined
  /** A folder for the broker's files. */
  readonly scratchDir: string
  stop(): Promise<void>
}

export async function openDatabases(given: string | undefined, network: Network): Promise<Databases> {
  if (given !== undefined && given !== '') return await createGivenDatabases(given)
  const postgres = await startPostgres()
  const [videoUrl, catalogUrl] = [await postgres.createDatabase('video'), await postgres.createDatabase('catalog')]
  const proxyPort = await network.open(postgres.port)
  // Beside the server's data: it is gone with the server, even if this process is killed. The server's account must be able to remove it.
  const scratchDir = join(dirname(postgres.dataDir), 'broker')
  await mkdir(scratchDir)
  await chmod(scratchDir, 0o777)
  return { isOwn: true, videoUrl, catalogUrl, proxyPort, scratchDir, stop: () => postgres.stop('immediate') }
}

async function createGivenDatabases(url: string): Promise<Databases> {
  const run = randomBytes(4).toString('hex')
  const names = [`waybill_demo_video_${run}`, `waybill_demo_catalog_${run}`] as const
  const withServer = async (statements: readonly string[]): Promise<void> => {
    const server = connect({ url, max: 1 })
    try {
      for (const statement of statements) await server.query(statement)
    } finally {
      await server.close()
    }
  }
  const urlOf = (name: string): string => Object.assign(new URL(url), { pathname: `/${name}` }).href
  await withServer(names.map((name) => `create database ${name}`))
  const scratchDir = await mkdtemp(join(tmpdir(), 'waybill-demo-'))
  const stop = async (): Promise<void> => {
    await rm(scratchDir, { recursive: true, force: true })
    await withServer(names.map((name) => `drop database if exists ${name} with (force)`))
  }
  return { isOwn: false, videoUrl: urlOf(names[0]), catalogUrl: urlOf(names[1]), proxyPort: undefined, scratchDir, stop }
}

export interface Broker {
  readonly isOwn: boolean
  readonly projectId: string
  /** Straight to it; `undefined` is Google itself. */
  readonly emulatorHost: string | undefined
  readonly proxyPort: number | undefined
  readonly ports: { readonly port: number; readonly adminPort: number }
}

export interface GivenBroker {
  readonly projectId: string | undefined
  readonly emulatorHost: string | undefined
}

/** Where the broker is or will be: its process, if it is ours, is kept by a ProcessKeeper. */
export async function placeBroker({ projectId, emulatorHost }: GivenBroker, network: Network): Promise<Broker> {
  if (projectId !== undefined || emulatorHost !== undefined) {
    const ports = { port: 0, adminPort: 0 }
    return { isOwn: false, projectId: projectId ?? 'demo', emulatorHost, proxyPort: undefined, ports }
  }
  const [port, adminPort] = [await freePort(), await freePort()]
  const proxyPort = await network.open(port)
  return { isOwn: true, projectId: 'demo', emulatorHost: `127.0.0.1:${port}`, proxyPort, ports: { port, adminPort } }
}

export interface Cache {
  /** `undefined` where the machine has no Redis: commands are cached in their own process. */
  readonly url: string | undefined
  readonly isOwn: boolean
  /** Kills it and starts it again, empty, after `forMs`. */
  interrupt(forMs: number): Promise<void>
  stop(): Promise<void>
}

export async function openCache(given: string | undefined): Promise<Cache> {
  const unable = async (): Promise<void> => {}
  if (given !== undefined && given !== '') return { url: given, isOwn: false, interrupt: unable, stop: unable }
  if (findRedis() === undefined) return { url: undefined, isOwn: false, interrupt: unable, stop: unable }
  let redis: Redis | undefined = await startRedis()
  const { url, port } = redis
  let isStopped = false
  return {
    url,
    isOwn: true,
    interrupt: async (forMs) => {
      await redis?.stop()
      await new Promise((done) => setTimeout(done, forMs))
      if (!isStopped) redis = await startRedis({ port })
    },
    stop: async () => {
      isStopped = true
      await redis?.stop()
    },
  }
}
