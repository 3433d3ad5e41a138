import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'

import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import type { DrillReport } from '../../drill/stage/drill.ts'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-drill-cli-'))
const source = (path: string): string => JSON.stringify(new URL(`../../../${path}`, import.meta.url).href)

const configText = (more: string): string => `
  import { postgresTransport } from ${source('src/transport/postgres/postgres-transport.ts')}
  export default { service: 'shop', ${more} transport: ({ db, schema }) => postgresTransport({ db, schema, leaseMs: 1_000 }) }`

beforeAll(async () => {
  await migrate(db, { schema: 'waybill', service: 'shop' })
  await migrate(db, { schema: 'live', service: 'shop', deploymentId: 'eu-production-1' })
  await writeFile(join(folder, 'waybill.config.ts'), configText(''))
  await writeFile(join(folder, 'production.config.ts'), configText(`environment: 'production',`))
})
afterAll(() => rm(folder, { recursive: true }))

const waybill = (words: string, env: Readonly<Record<string, string>> = {}): Promise<Ended> =>
  runLine(words, { folder, env: { DATABASE_URL: database.url, ...env } })

const drillSchemas = async (): Promise<number> =>
  (await db.query(`select nspname from pg_namespace where nspname like 'waybill_drill_%'`)).rows.length
const rowsOf = async (table: string): Promise<number> => (await db.query(`select from waybill.${table}`)).rows.length

test('the list names at least thirteen drills, each with its hazard and its fault', async () => {
  const { out } = await waybill('drill list --json')
  const { drills } = JSON.parse(out) as { drills: { name: string; hazard: string; fault: string }[] }
  expect(drills.length).toBeGreaterThanOrEqual(13)
  expect(new Set(drills.map(({ name }) => name)).size).toBe(drills.length)
  for (const { hazard, fault } of drills) expect(Math.min(hazard.length, fault.length)).toBeGreaterThan(30)
})

test.each([
  { sign: 'NODE_ENV', words: '', env: { NODE_ENV: 'production' }, says: 'its environment is "production"' },
  { sign: 'the configuration', words: ' --config production.config.ts', env: {}, says: 'its environment is "production"' },
  { sign: 'the deployment of the database', words: ' --schema live', env: {}, says: 'its deployment is "eu-production-1"' },
])('a stack that calls itself production by $sign is refused, and nothing is made there', async ({ words, env, says }) => {
  const { code, err } = await waybill(`drill run --all --on config${words}`, env)
  expect(code).toBe(3)
  expect(err).toContain(`This stack calls itself production: ${says}.`)
  expect(err).toContain('--i-know-this-is-production')
  expect(await drillSchemas()).toBe(0)
})

test('on the stack of the configuration a drill keeps to itself, removes what it made, and tells all in JSON and as a page', async () => {
  const before = [await rowsOf('outbox'), await rowsOf('inbox'), await rowsOf('transport_message')]
  const page = join(folder, 'report.html')
  const { code, out, err } = await waybill(`drill run crash-after-publish --on config --json --html ${page}`)
  expect(err).toContain('crash-after-publish')
  const report = JSON.parse(out) as DrillReport
  expect(report).toMatchObject({ verdict: 'pass', passed: 1, failed: 0, skipped: 0, on: 'config', seed: 1 })
  const [drill] = report.drills
  expect(drill).toMatchObject({ name: 'crash-after-publish', verdict: 'pass', fired: true, violations: [] })
  expect(drill?.evidence).toContain('SIGKILL')
  expect(drill?.counts.duplicates).toBeGreaterThan(0)
  expect(drill?.judged).toEqual(expect.arrayContaining(['no-loss', 'one-effect', 'first-occurrence-order', 'version-monotonic']))
  expect(drill?.timeline.map(({ kind }) => kind)).toContain('fault')
  expect(code).toBe(0)
  expect(await readFile(page, 'utf8')).toContain('id="crash-after-publish"')
  expect(await drillSchemas()).toBe(0)
  expect([await rowsOf('outbox'), await rowsOf('inbox'), await rowsOf('transport_message')]).toEqual(before)
}, 180_000)

test('told that it is production, it runs; a drill that stops servers is skipped there, which is said and is no success', async () => {
  const { code, out } = await waybill('drill run database-restart --on config --i-know-this-is-production --json', {
    NODE_ENV: 'production',
  })
  const report = JSON.parse(out) as DrillReport
  expect(report).toMatchObject({ verdict: 'fail', passed: 0, skipped: 1 })
  expect(report.drills[0]).toMatchObject({ verdict: 'skipped', fired: false })
  expect(report.drills[0]?.evidence).toContain('without --on config')
  expect(code).toBe(4)
})

test('a drill that does not exist is answered with what was probably meant', async () => {
  const { code, err } = await waybill('drill run stale-versions')
  expect(code).toBe(2)
  expect(err).toContain('Did you mean "stale-version"?')
  expect((await waybill('drill run')).err).toContain('Which drill?')
})
