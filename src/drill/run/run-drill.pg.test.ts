import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test, vi } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { startFaultProxy } from '../../testing/faults/fault-proxy.ts'
import { openConfigured } from '../target/configured.ts'
import type { Drill } from '../stage/drill.ts'
import { createRequests } from '../stage/requests.ts'
import { drills } from '../drills.ts'
import { runDrill } from './run-drill.ts'
import { runDrills } from './run-drills.ts'
import { Stage } from '../stage/stage.ts'
import type { EmbeddedServers, Target } from '../target/target.ts'

const database = await testDatabase()
const folder = await mkdtemp(join(tmpdir(), 'waybill-run-drill-'))
afterAll(() => rm(folder, { recursive: true }))

const transportFile = JSON.stringify(new URL('../../transport/postgres/postgres-transport.ts', import.meta.url).href)

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

/** Busy machines are slow; nothing here is about how fast it is. */
const patience = { recoverMs: 180_000, patienceMs: 180_000 }
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
  { timeout: 600_000 },
  async () => {
    const restless = await place('restless', 'postgresTransport({ db, schema })', { unsettled: async () => 1 })
    const failed = await runDrill(drill, { target: restless, seed: 1, ...patience, recoverMs: 4_000 })
    expect(failed).toMatchObject({ verdict: 'fail', fired: true })
    expect(failed.violations).toContain('The system did not come to rest within 4 s.')
    expect(failed.timeline.map(({ what }) => what)).not.toContain('the system is at rest')

    const still = await place('still', 'postgresTransport({ db, schema })', { unsettled: async () => 0 })
    const passed = await runDrill(drill, { target: still, seed: 1, ...patience })
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

test('a database that turns the first connections away is asked again: by a stage that opens, and by a client that is put off', async () => {
  const { hostname: host, port } = new URL(database.url)
  const proxy = await startFaultProxy({ target: { host, port: Number(port) } })
  const target = await place('refused', 'postgresTransport({ db, schema })', { url: proxy.url(database.url) })
  const turnedAwayOnce = async <Done>(work: () => Promise<Done>): Promise<Done> => {
    const before = proxy.refused
    proxy.refuse()
    proxy.cut()
    const done = work()
    await Promise.race([done, eventually(() => proxy.refused > before)])
    proxy.heal()
    return await done
  }
  const stage = await turnedAwayOnce(() => Stage.open({ target, seed: 1, ...patience }))
  await turnedAwayOnce(() => createRequests(stage, { db: stage.world.db }).succeed(['request-0']))
  expect(stage.recorded.at(-1)).toMatchObject({ op: 'answer', outcome: 'ok' })
  await stage.close()
  await proxy.stop()
  await gone()
})

test('what could not be removed is in the record, and is no reason to stop', { timeout: 600_000 }, async () => {
  const removeTopic = (): Promise<void> => Promise.reject(new Error('no permission'))
  const target = await place('stuck', 'postgresTransport({ db, schema })', { removeTopic })
  const record = await runDrill(drill, { target, seed: 1, ...patience })
  expect(record).toMatchObject({ verdict: 'fail', fired: true })
  expect(record.violations).toEqual([expect.stringMatching(/could be removed \(schema waybill_drill_.*no permission/)])
  expect(record.counts.committed).toBeGreaterThan(0)
  await gone()
})

test('a drill that fails while deposits are written fails alone, and nothing is written any more', async () => {
  const target = await place('writing', 'postgresTransport({ db, schema })')
  const stage = await Stage.open({ target, seed: 1 })
  const failing = stage.writeDuring(() => Promise.reject(new Error('no restart today')))
  await expect(failing).rejects.toThrow('no restart today')
  await stage.close()
  await gone()
})

test('deposits go on until PostgreSQL is back, and a restart counts only then', { timeout: 600_000 }, async () => {
  const postgres = {
    pid: 1,
    restart: async (): Promise<void> => {
      await moreDeposits(70)
      postgres.pid = 2
    },
  }
  const servers = { postgres } as unknown as EmbeddedServers
  const target = await place('restart', 'postgresTransport({ db, schema })', { servers })
  const record = await runDrill(named('database-restart'), { target, seed: 1, ...patience })
  expect(record).toMatchObject({ verdict: 'pass', fired: true, violations: [] })
  const [, committed, applied] = /with (\d+) deposits committed and (\d+) of them applied/.exec(record.evidence) ?? []
  expect(Number(committed)).toBeGreaterThan(Number(applied))
})

test('a long transaction that was ended and ran again is not seen as one', { timeout: 600_000 }, async () => {
  const target = await place('ended', 'postgresTransport({ db, schema })')
  // The drill asks for the effects while the transaction stands open, and it is the oldest by then.
  const asked = vi.spyOn(Stage.prototype, 'effects').mockImplementation(async () => {
    const ended = await database.pool.query(
      `select pg_terminate_backend(pid, 10000) from pg_stat_activity
        where datname = current_database() and application_name = 'drill' and state = 'idle in transaction'
        order by xact_start limit 1`,
    )
    expect(ended.rowCount).toBe(1)
    return 30
  })
  const record = await runDrill(named('long-transaction'), { target, seed: 1, ...patience }).finally(() => asked.mockRestore())
  expect(record).toMatchObject({ verdict: 'fail', fired: false, violations: [] })
})

test(
  'a relay whose first publish sends nothing is killed after one that the broker has confirmed',
  { timeout: 600_000 },
  async () => {
    const target = await place(
      'unavailable',
      `{
  const transport = postgresTransport({ db, schema })
  const publish = transport.publish.bind(transport)
  let calls = 0
  const late = ({ status: 'unavailable', error: new Error('late') })
  return Object.assign(transport, {
    publish: async (messages, options) => (calls += 1) === 1 ? messages.map(() => late) : await publish(messages, options),
  })
}`,
    )
    const record = await runDrill(named('crash-after-publish'), { target, seed: 1, ...patience })
    expect(record).toMatchObject({ verdict: 'pass', fired: true, violations: [] })
  },
)

test('a process that does not stop when it is told to fails the drill, at its end and in the middle', async () => {
  const target = await place('deaf', 'postgresTransport({ db, schema })')
  const script = new URL('../../../test/fixtures/deaf-child.ts', import.meta.url)
  const run = (stops: boolean) => async (stage: Stage) => {
    const consumer = await stage.start('consumer')
    if (stops) await consumer.stop()
    stage.fired('seen')
  }
  const play = (stops: boolean) => runDrill({ ...drill, run: run(stops) }, { target, seed: 1, script, stopMs: 100 })
  const late = 'The consumer did not stop within 0.1 s, and was killed.'
  expect(await play(false)).toMatchObject({ verdict: 'fail', fired: true, violations: [late] })
  expect(await play(true)).toMatchObject({ verdict: 'fail', fired: false, violations: [`The drill could not go on: ${late}`] })
})

test('what cannot be closed does not hide why a drill failed', async () => {
  const target = await place('hidden', 'postgresTransport({ db, schema })')
  const run: Drill['run'] = (stage) => {
    stage.defer(() => Promise.reject(new Error('the cache does not stop')))
    return Promise.reject(new Error('no way'))
  }
  const { violations } = await runDrill({ ...drill, run }, { target, seed: 1 })
  expect(violations).toEqual(['The drill could not go on: no way', expect.stringContaining('the cache does not stop')])
  await gone()
})

test('a target that cannot be closed fails the run, and no drill of its report is lost', async () => {
  const target = await place('unclosed', 'postgresTransport({ db, schema })')
  const close = () => target.close().then(() => Promise.reject(new Error('the topic is still there')))
  const run: Drill['run'] = (stage) => Promise.resolve(stage.fired('seen'))
  const report = await runDrills([{ ...drill, run }], { open: () => Promise.resolve({ ...target, close }) })
  expect(report).toMatchObject({ verdict: 'fail', passed: 1, leftBehind: 'the topic is still there' })
})

function named(name: string): Drill {
  return drills.find((each) => each.name === name) as Drill
}

/** Waits until so many more are committed than there are. */
async function moreDeposits(count: number): Promise<void> {
  const found = await database.pool.query(`select nspname from pg_namespace where nspname like 'waybill_drill_%'`)
  const events = async (): Promise<number> =>
    Number((await database.pool.query(`select count(*) from ${found.rows[0].nspname}.outbox`)).rows[0].count)
  const before = await events()
  await eventually(async () => (await events()) >= before + 2 * count)
}

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
