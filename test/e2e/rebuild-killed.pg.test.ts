import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'

import { createConsumer } from '../../src/consumer/consumer.ts'
import { createOutbox, event } from '../../src/outbox/outbox.ts'
import { createRelay } from '../../src/outbox/relay/relay.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { postgresTransport } from '../../src/transport/postgres/postgres-transport.ts'
import { videos } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-rebuild-killed-'))
afterAll(() => rm(folder, { recursive: true }))
const root = new URL('../../', import.meta.url)
const source = (path: string): string => JSON.stringify(new URL(path, root).href)
const total = 1_200

/** Runs the command in a process of its own; `dieAfter` rows it ends itself as `kill -9` would. */
function rebuild(words: string, dieAfter = ''): Promise<{ readonly signal: string | undefined; readonly out: string }> {
  const line = [fileURLToPath(new URL('src/cli/main.ts', root)), 'rebuild', 'catalog', ...words.split(' ')]
  const env = { ...process.env, DATABASE_URL: database.url, DIE_AFTER: dieAfter }
  return new Promise((done) => {
    execFile(process.execPath, line, { cwd: folder, env }, (error, stdout) => done({ signal: error?.signal, out: stdout }))
  })
}

async function count(text: string): Promise<number> {
  return (await db.query(text)).rows.length
}

async function fillLiveProjection(): Promise<void> {
  await migrate(db, { schema: 'waybill', service: 'test' })
  await db.query(
    'create table video_view (video_id text primary key, title text, version bigint not null, deleted_at timestamptz)',
  )
  const outbox = createOutbox()
  const transport = postgresTransport({ db })
  const events = Array.from({ length: total }, (_, i) => event(videos.VideoPublished, `v${i}`, { title: `title ${i}` }))
  await transaction(db, (tx) => outbox.addMany(tx, events))
  await createRelay({ db, outbox, transport }).once()
  const stop = new AbortController()
  const consumer = createConsumer({ db, transport, name: 'catalog', streams: [videos] })
  consumer.project(videos, { table: 'public.video_view', key: 'video_id', set: (e) => ({ title: e.data.title }) })
  const running = consumer.run({ stopping: stop.signal, aborting: new AbortController().signal })
  await eventually(async () => (await count('select from video_view')) === total)
  stop.abort()
  await running
  await transport.close()
}

test.each(['outbox', 'earliest'])(
  'a rebuild from %s that was killed goes on with what it had, and ends as the owner has it',
  async (from) => {
    if ((await count(`select from pg_namespace where nspname = 'waybill'`)) === 0) await fillLiveProjection()
    await writeFile(
      join(folder, 'waybill.config.ts'),
      `import { createConsumer } from ${source('src/consumer/consumer.ts')}
     import { postgresTransport } from ${source('src/transport/postgres/postgres-transport.ts')}
     import { videos } from ${source('test/setup/consumer-fixture.ts')}
     let rows = 0
     const die = () => { if (++rows > Number(process.env.DIE_AFTER || Infinity)) process.kill(process.pid, 'SIGKILL') }
     export default {
       service: 'test',
       transport: ({ db, schema }) => postgresTransport({ db, schema }),
       consumers: (context) => [
         createConsumer({ ...context, name: 'catalog', streams: [videos], batchSize: 50, maxInFlight: 100 })
           .project(videos, { table: 'public.video_view', key: 'video_id', set: (e) => (die(), { title: e.data.title }) }),
       ],
     }`,
    )
    await db.query(`update video_view set title = 'wrong'`)
    expect(await rebuild(`--from ${from} --swap`, '700')).toMatchObject({ signal: 'SIGKILL' })
    const [register] = (await db.query('select next_generation as next from waybill.consumer')).rows as {
      readonly next: number
    }[]
    const had = await count(`select from video_view_g${register?.next}`)
    expect(had).toBeGreaterThan(0)
    expect(had).toBeLessThan(total)
    expect(await count(`select from video_view where title = 'wrong'`)).toBe(total)

    expect((await rebuild('--swap --drop-old --yes')).out).toContain(
      `Generation ${register?.next} of catalog is built: ${total} aggregates.`,
    )
    expect(await count(`select from video_view where title = 'title ' || substr(video_id, 2) and version = 1`)).toBe(total)
    expect(await count('select from waybill.consumer_position where generation <> 1')).toBe(0)
  },
)
