import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { testDatabase } from '../../test/setup/test-database.ts'
import { eventually } from '../testing/eventually.ts'
import { openConfigured } from './config-target.ts'
import type { Drill } from './drill.ts'
import { runDrill } from './run-drill.ts'
import { Stage } from './stage.ts'
import type { Target } from './target.ts'

const database = await testDatabase()
const folder = await mkdtemp(join(tmpdir(), 'waybill-run-drill-'))
afterAll(() => rm(folder, { recursive: true }))

const transportFile = JSON.stringify(new URL('../transport/postgres/postgres-transport.ts', import.meta.url).href)

/** A place on this database, with the transport that the text makes. */
async function place(name: string, transport: string, more: Partial<Target> = {}): Promise<Target> {
  const file = join(folder, `${name}.config.ts`)
  await writeFile(
    file,
    `import { postgresTransport } from ${transportFile}
export default { service: 'shop', transport: ({ db, schema }) => ${transport} }`,
  )
  return { ...(await openConfigured({ url: database.url, file, pubsub: undefined })), ...more }
}

const drill: Drill = {
  name: 'nothing',
  hazard: 'none',
  fault: 'none',
  needs: 'processes',
  run: async (stage) => {
    await stage.start('relay')
    await stage.start('consumer')
    await stage.write(3)
    stage.fired('seen')
  },
}

test(
  'a system whose effects are right and whose broker keeps messages has not come to rest, and fails',
  { timeout: 180_000 },
  async () => {
    const restless = await place('restless', 'postgresTransport({ db, schema })', { unsettled: async () => 1 })
    const failed = await runDrill(drill, { target: restless, seed: 1, recoverMs: 4_000 })
    expect(failed).toMatchObject({ verdict: 'fail', fired: true })
    expect(failed.violations).toContain('The system did not come to rest within 4 s.')
    expect(failed.timeline.map(({ what }) => what)).not.toContain('the system is at rest')

    const still = await place('still', 'postgresTransport({ db, schema })', { unsettled: async () => 0 })
    const passed = await runDrill(drill, { target: still, seed: 1 })
    expect(passed).toMatchObject({ verdict: 'pass', violations: [] })
    expect(passed.timeline.map(({ what }) => what)).toContain('the system is at rest')
  },
)

test('a stage that cannot be opened leaves nothing in the database, and says why', async () => {
  const target = await place('broken', `{ throw new Error('no such credentials') }`)
  const record = await runDrill(drill, { target, seed: 1 })
  expect(record.violations).toEqual(['The drill could not go on: no such credentials'])
  await gone()
})

test('what could not be removed is in the record, and is no reason to stop', { timeout: 180_000 }, async () => {
  const removeTopic = (): Promise<void> => Promise.reject(new Error('no permission'))
  const target = await place('stuck', 'postgresTransport({ db, schema })', { removeTopic })
  const record = await runDrill(drill, { target, seed: 1 })
  expect(record).toMatchObject({ verdict: 'fail', fired: true })
  expect(record.violations).toEqual([expect.stringMatching(/could be removed \(schema waybill_drill_.*no permission/)])
  expect(record.counts.committed).toBeGreaterThan(0)
  await gone()
})

test('a drill that fails while deposits are written fails alone, and nothing is written any more', async () => {
  const target = await place('writing', 'postgresTransport({ db, schema })')
  const stage = await Stage.open({ target, seed: 1 })
  const failing = stage.writeDuring(1_000_000, () => Promise.reject(new Error('no restart today')))
  await expect(failing).rejects.toThrow('no restart today')
  await stage.close()
  await gone()
})

/** Neither a schema nor a connection is left. */
async function gone(): Promise<void> {
  const schemas = await database.pool.query(`select from pg_namespace where nspname like 'waybill_drill_%'`)
  expect(schemas.rowCount).toBe(0)
  await eventually(async () => {
    const open = await database.pool.query(
      `select from pg_stat_activity where datname = current_database() and application_name = 'drill'`,
    )
    expect(open.rowCount).toBe(0)
  })
}
