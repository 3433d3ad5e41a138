import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { consumerFixture, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { runLine, type Circumstances, type Ended } from '../../../test/setup/run-line.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-status-'))
afterAll(() => rm(folder, { recursive: true }))

const waybill = (line: string, more: Partial<Circumstances> = {}): Promise<Ended> =>
  runLine(line, { folder, env: { DATABASE_URL: database.url }, ...more })

test('a check fails while the lag is over its limit, and passes after the relay caught up', async () => {
  const fixture = await outboxFixture(db)
  const line = `status --check --schema ${fixture.outbox.tables.schema} --max-lag 50ms`
  expect(await waybill(line)).toMatchObject({ code: 0, out: expect.stringContaining('Check      all within their limits') })
  await fixture.publish('v1', 'one')
  const late = await eventually(async () => {
    const told = await waybill(line)
    return told.code === 4 && told
  })
  expect(late.out).toMatch(/Outbox {5}1 events wait, the oldest for .*: 1 due/)
  expect(late.out).toMatch(/Check {6}test: the oldest event to publish is \d+ ms old; 50 ms is allowed/)
  await fixture.relay(memory()).once()
  expect((await waybill(line)).code).toBe(0)
  const json = await waybill(`${line} --json`)
  expect(JSON.parse(json.out)).toMatchObject({ service: 'test', ok: true, findings: [], outbox: { due: 0, lagMs: 0 } })
})

test('a limit implies the check, and what cannot be meant is refused', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(fixture.consumer({ maxAttempts: 1 }).on(videos.VideoPublished, async () => {}))
  await fixture.publish({ ...published('v1', 1), body: Buffer.from('no json') })
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  const at = `--schema ${fixture.schema}`
  expect(await waybill(`status ${at}`)).toMatchObject({ code: 0, out: expect.stringContaining('1 dead letters: invalid 1') })
  expect((await waybill(`status ${at} --max-dead 0`)).code).toBe(4)
  expect((await waybill(`status ${at} --max-dead 1`)).code).toBe(0)
  expect(await waybill(`status ${at} --max-lag 30`)).toMatchObject({
    code: 2,
    err: expect.stringContaining('such as 500ms, 30s'),
  })
  expect((await waybill(`status ${at} --max-dead some`)).code).toBe(2)
  expect((await waybill(`status ${at} --every 1s`)).code).toBe(2)
})

test('watching draws over the last picture until it is stopped, and leaves the last one', async () => {
  const { outbox } = await outboxFixture(db)
  const stop = new AbortController()
  let pictures = 0
  const told = await waybill(`status --watch --every 1ms --schema ${outbox.tables.schema}`, {
    signal: stop.signal,
    isTerminal: true,
    onOut: (text) => {
      if (!text.includes('Outbox')) return
      pictures += 1
      if (pictures === 3) stop.abort()
    },
  })
  expect(told.code).toBe(0)
  const clear = '\u001b[H\u001b[J'
  expect(told.out.startsWith(clear)).toBe(true)
  const [, drawn = '', last = ''] = told.out.split(clear)
  expect(drawn.split('\u001b[H')).toHaveLength(4)
  expect(drawn).toContain('\u001b[K\n')
  expect(last).toMatch(/^test, schema \S+, at .*\nOutbox {5}0 events wait/)
})

test('watching with --json is one line each time', async () => {
  const { outbox } = await outboxFixture(db)
  const stop = new AbortController()
  const told = await waybill(`status --watch --every 1ms --json --schema ${outbox.tables.schema}`, {
    signal: stop.signal,
    isTerminal: true,
    onOut: () => stop.abort(),
  })
  const lines = told.out.trimEnd().split('\n')
  expect(lines).toHaveLength(2)
  for (const line of lines) expect(JSON.parse(line)).toMatchObject({ outbox: { due: 0 } })
})

test('several services are shown one after the other, each by its own configuration', async () => {
  const owner = await outboxFixture(db)
  const reader = await consumerFixture(db)
  const file = join(folder, 'reader.config.ts')
  const config = { service: 'test', database: { url: database.url }, schema: reader.schema }
  await writeFile(file, `export default ${JSON.stringify(config)}\n`)
  const both = await waybill(`status --json --schema ${owner.outbox.tables.schema} --also ${file}`)
  expect(JSON.parse(both.out)).toMatchObject({
    services: [{ schema: owner.outbox.tables.schema }, { schema: reader.schema }],
  })
  await writeFile(join(folder, 'nowhere.config.ts'), `export default { service: 'test' }\n`)
  expect(await waybill(`status --also nowhere.config.ts`)).toMatchObject({
    code: 2,
    err: expect.stringContaining('--also nowhere.config.ts: set database.url there'),
  })
})

test('the clean-up is late by the TTL of the configuration, and by an hour without one', async () => {
  const { schema } = await consumerFixture(db)
  await db.query(`insert into ${schema}.command_marker (created_at, principal, request_id, command, fingerprint)
    values (now() - interval '20 hours', 'ann', 'r1', 'Teach', '\\x00')`)
  const check = async (name: string, config: object): Promise<Ended> => {
    const file = join(folder, `${name}.config.ts`)
    await writeFile(file, `export default ${JSON.stringify({ service: 'test', schema, ...config })}\n`)
    return await waybill(`status --check --config ${file}`)
  }
  expect(await check('hour', {})).toMatchObject({ code: 4, out: expect.stringContaining('the clean-up of markers is') })
  expect(await check('day', { markerTtlMs: 86_400_000 })).toMatchObject({ code: 0 })
  expect(await check('words', { markerTtlMs: 'a day' })).toMatchObject({
    code: 2,
    err: expect.stringContaining('markerTtlMs: must be a whole number'),
  })
})
