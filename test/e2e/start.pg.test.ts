/**
 * `npm start` as its users run it: headless with everything broken in turn, and stopped in every way.
 */
import { chmod, mkdir, mkdtemp, readdir, rm, symlink } from 'node:fs/promises'
import { platform, tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { runCommand } from '../../scripts/run-command.ts'
import { cacheFolder } from '../../src/testing/process/cache-folder.ts'
import { startChild } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { findRedis } from '../../src/testing/servers/redis.ts'
import { startPubsubServer } from 'waybill-pubsub-server'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const script = new URL('../../scripts/start.ts', import.meta.url)
const signalAgain = new URL('../fixtures/signal-again.ts', import.meta.url).href

interface Report {
  readonly verdict: string
  readonly committed: number
  readonly applied: number
  readonly kills: { readonly count: number; readonly kinds: Readonly<Record<string, number>> }
  readonly restarts: Readonly<Record<string, number>>
  readonly survived: Readonly<Record<string, number>>
  readonly latencyMs: Readonly<Record<string, { readonly p50: number; readonly p95: number }>>
  readonly throughputPerSecond: number
}

test('headless it breaks everything in turn, and nothing is lost, doubled or reordered', { timeout: 240_000 }, async () => {
  const { code, output } = await runCommand(['node', 'scripts/start.ts', '--for', '6s', '--json'])
  const line = output.split('\n').find((each) => each.startsWith('{'))
  expect(line ?? output).toMatch(/^\{/)
  const report = JSON.parse(line ?? '') as Report
  expect(report).toMatchObject({ verdict: 'ok', lost: 0, doubled: 0, outOfOrder: 0, stale: 0, violations: [] })
  expect(report.applied).toBe(report.committed)
  expect(report.committed).toBeGreaterThan(20)
  const kinds = ['kill-relay', 'kill-catalog', 'kill-broker', 'kill-video', 'cut-network', 'inject-duplicates', 'inject-stale']
  const expected = [...kinds, 'inject-poison', ...(findRedis() === undefined ? [] : ['stop-redis'])]
  expect(Object.keys(report.kills.kinds).toSorted()).toEqual(expected.toSorted())
  const idle = Object.entries(report.restarts).filter(([, restarts]) => restarts === 0)
  expect(idle).toEqual([])
  expect(Object.keys(report.restarts).toSorted()).toEqual(['broker', 'consumer', 'owner', 'relay'])
  const survived = ['duplicates', 'staleVersions', 'deadLetters', 'repeated', 'reads']
  expect(survived.filter((what) => !((report.survived[what] ?? 0) > 0))).toEqual([])
  for (const each of ['commitToPublish', 'commitToApplied']) expect(report.latencyMs[each]?.p50).toBeGreaterThan(0)
  expect(report.throughputPerSecond).toBeGreaterThan(0)
  expect(code).toBe(0)
})

test(
  'services that it is given are used and never harmed, and it takes its databases with it',
  { timeout: 240_000 },
  async () => {
    const broker = await startPubsubServer()
    const given = new URL(database.directUrl)
    given.password ||= 'canary-password'
    const env = { DATABASE_URL: given.href, PUBSUB_EMULATOR_HOST: broker.emulatorHost, PUBSUB_PROJECT_ID: 'given' }
    const { code, output } = await runCommand(['node', 'scripts/start.ts', '--for', '3s', '--json'], { env })
    const report = JSON.parse(output.split('\n').find((each) => each.startsWith('{')) ?? '{}') as Report
    expect(report).toMatchObject({ verdict: 'ok', lost: 0, doubled: 0, outOfOrder: 0, stale: 0, violations: [] })
    expect(output).toMatch(/catalog .*:\*\*\*@/)
    expect(output).not.toContain(`:${given.password}@`)
    expect(report.kills.kinds).not.toHaveProperty('kill-broker')
    expect(report.kills.kinds).not.toHaveProperty('cut-network')
    expect(broker.stats().published).toBeGreaterThanOrEqual(report.committed)
    const { rows } = await database.pool.query(`select datname from pg_database where datname like 'waybill_demo_%'`)
    expect(rows).toEqual([])
    expect(code).toBe(0)
    await broker.stop()
  },
)

test.each(['SIGINT', 'SIGKILL'] as const)('ended by %s it leaves no process and no file behind', async (signal) => {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-test-'))
  const [files, caches] = [join(folder, 'files'), join(folder, 'caches')]
  for (const each of [files, caches]) await mkdir(each)
  for (const each of [folder, caches]) await chmod(each, 0o755)
  await chmod(files, 0o1777)
  // What is made once per machine may stay.
  await symlink(cacheFolder(), join(caches, 'waybill'))
  // Elsewhere than on Linux the broker's lock is a file, which the next broker removes.
  const temporary = platform() === 'linux' ? { TMPDIR: files, XDG_CACHE_HOME: caches } : {}
  const env = { WAYBILL_SERVICE_FOLDER: files, ...temporary, NODE_OPTIONS: `--import=${signalAgain}` }
  const demo = startChild(script, { args: ['--rate', '20'], env })
  const pids = [...(await demo.line('processes')).matchAll(/ (\d+)/g)].map(([, pid]) => Number(pid))
  const { url } = await demo.message<{ url: string }>((message) => typeof message?.url === 'string')
  expect(pids).toHaveLength(4)
  expect(pids.every(isAlive)).toBe(true)
  expect((await fetch(url)).status).toBe(200)
  const { code } = await demo.kill(signal)
  expect(code).toBe(signal === 'SIGINT' ? 0 : null)
  await eventually(() => !pids.some(isAlive))
  await eventually(async () => expect(await readdir(files)).toEqual([]))
  await rm(folder, { recursive: true })
  await expect(fetch(url)).rejects.toThrow('fetch failed')
})

test('a wrong option is explained, and nothing is started', async () => {
  const { code, output } = await runCommand(['node', 'scripts/start.ts', '--for', 'ever'])
  expect(output).toContain('--for ever: write a number')
  expect(code).toBe(2)
})

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
