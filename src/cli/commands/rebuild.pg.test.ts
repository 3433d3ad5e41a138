import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'

import { videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { createOutbox, event } from '../../outbox/outbox.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { postgresTransport } from '../../transport/postgres/postgres-transport.ts'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-rebuild-cli-'))
const source = (path: string): string => JSON.stringify(new URL(`../../../${path}`, import.meta.url).href)
const count = async (text: string): Promise<number> => (await db.query(text)).rows.length

beforeAll(async () => {
  await migrate(db, { schema: 'waybill', service: 'test' })
  await db.query(
    'create table video_view (video_id text primary key, title text, version bigint not null, deleted_at timestamptz)',
  )
  await writeFile(
    join(folder, 'waybill.config.ts'),
    `import { createConsumer } from ${source('src/consumer/consumer.ts')}
     import { postgresTransport } from ${source('src/transport/postgres/postgres-transport.ts')}
     import { videos } from ${source('test/setup/consumer-fixture.ts')}
     export default {
       service: 'test',
       transport: ({ db, schema }) => postgresTransport({ db, schema }),
       consumers: (context) => [
         createConsumer({ ...context, name: 'catalog', streams: [videos], pollMs: 5 })
           .project(videos, { table: 'public.video_view', key: 'video_id', set: (e) => ({ title: e.data.title }) }),
       ],
     }`,
  )
  await writeFile(
    join(folder, 'away.config.ts'),
    `import config from './waybill.config.ts'
     const unsubscribe = () => Promise.reject(new Error('the broker is away'))
     export default { ...config, transport: (context) => ({ ...config.transport(context), unsubscribe }) }`,
  )
  const outbox = createOutbox()
  const events = Array.from({ length: 30 }, (_, i) => event(videos.VideoPublished, `v${i}`, { title: `title ${i}` }))
  await transaction(db, (tx) => outbox.addMany(tx, events))
  const transport = postgresTransport({ db })
  await createRelay({ db, outbox, transport }).once()
  await transport.close()
})
afterAll(() => rm(folder, { recursive: true }))

const waybill = (line: string, signal?: AbortSignal): Promise<Ended> =>
  runLine(line, { folder, env: { DATABASE_URL: database.url }, signal })

test('a projection is rebuilt, compared, swapped in and the old one dropped, from the command line', async () => {
  const stop = new AbortController()
  const consuming = waybill('consume', stop.signal)
  await eventually(async () => (await count('select from video_view')) === 30)
  stop.abort()
  expect((await consuming).code).toBe(0)
  await db.query(`update video_view set title = 'wrong' where video_id = 'v7'`)

  const compared = await waybill('rebuild catalog --from outbox --compare --swap')
  expect(compared.code).toBe(4)
  expect(compared.out).toContain('30 rows live, 30 rebuilt; 0 missing, 0 extra, 0 older, 0 newer, 1 different; checksums differ.')
  expect(compared.out).toContain('Not swapped. Go on with: waybill rebuild catalog --swap')
  expect(compared.err).toMatch(/catalog: 30 of 30 aggregates \(100 %\)\n/)

  const late = await waybill('rebuild catalog --swap --swap-wait 1ms')
  expect(late).toMatchObject({ code: 1, err: expect.stringContaining('or with a longer swapWaitMs (--swap-wait)') })
  await db.query(`insert into video_view (video_id, title, version) values ('ghost', 'boo', 1)`)
  const refused = await waybill('rebuild catalog --swap')
  expect(refused).toMatchObject({ code: 3, err: expect.stringContaining('such as ghost') })
  const swapped = await waybill('rebuild catalog --swap --drop-unknown')
  expect(swapped).toMatchObject({ code: 0, out: expect.stringContaining('Swapped in. Replaced: public.video_view_before_g2.') })
  expect(swapped.out).toContain('1 rows of no known aggregate went; public.video_view_before_g2 has them until it is dropped.')
  expect(await count(`select from video_view where title = 'wrong'`)).toBe(0)
  expect(await waybill('rebuild catalog --drop-old')).toMatchObject({
    code: 3,
    out: 'would drop public.video_view_before_g2\n',
    err: expect.stringContaining('Nothing was changed. To drop, run the same with --yes.'),
  })
  expect(await count('select from video_view_before_g2')).toBe(31)
  expect(await waybill('rebuild catalog --drop-old --yes')).toMatchObject({
    code: 0,
    out: 'Dropped public.video_view_before_g2.\n',
  })
  expect(await waybill('rebuild catalog --drop-old --yes')).toMatchObject({ code: 0, out: 'No replaced table is left.\n' })
  const audited = await db.query(`select action, actor from waybill.audit_log where action like 'rebuild%' order by id`)
  expect(audited.rows).toEqual(['begin', 'swap', 'drop'].map((what) => ({ action: `rebuild.${what}`, actor: 'ada' })))

  const line = 'rebuild catalog --from earliest --compare --swap --drop-old'
  expect(await waybill(line)).toMatchObject({ code: 3, out: 'would drop the tables that the swap replaces\n' })
  expect(await count('select from waybill.consumer where next_generation is not null')).toBe(0)
  const again = await waybill(`${line} --yes --json`)
  expect(again.code).toBe(0)
  expect(JSON.parse(again.out)).toMatchObject({ generation: 3, swapped: true, dropped: ['public.video_view_before_g3'] })
})

test('a swap that is done says so, and how to remove what it could not', async () => {
  const swapped = await waybill('rebuild catalog --from earliest --swap --config away.config.ts')
  expect(swapped).toMatchObject({ code: 0, out: expect.stringContaining('Swapped in.') })
  const [, named = ''] = /could not be removed \(the broker is away\)\. Run: waybill (.*)\n/.exec(swapped.err) ?? []
  expect(named).toBe('rebuild catalog --abandon --yes --schema waybill')
  const subscribed = `select from waybill.transport_subscription where consumer like 'catalog.g%'`
  expect(await count(subscribed)).toBe(1)
  const abandoned = await waybill(named)
  expect(abandoned).toMatchObject({
    code: 0,
    out: 'No rebuild of catalog is under way. Removed what earlier ones remembered and their subscriptions.\n',
  })
  expect(await count(subscribed)).toBe(0)
})

test('a rebuild is given up, and mistakes are explained', async () => {
  const begun = await waybill('rebuild catalog --from 2025-01-01')
  expect(begun).toMatchObject({ code: 0, err: expect.stringContaining('catalog: from 2025-01-01T00:00:00.000Z\n') })
  expect(await waybill('rebuild catalog --from 2025-01-01T01:00:00+01:00')).toMatchObject({ code: 0 })
  const [shadow = ''] = (
    await db.query(`select 'public.video_view_g' || next_generation as name from waybill.consumer`)
  ).rows.map((row) => (row as { readonly name: string }).name)
  expect(await waybill('rebuild catalog --abandon')).toMatchObject({
    code: 3,
    out: `would drop ${shadow}\n`,
    err: expect.stringContaining('Nothing was changed. To abandon, run the same with --yes.'),
  })
  expect(await count(`select from ${shadow}`)).toBe(30)
  expect(await waybill('rebuild catalog --abandon --yes')).toMatchObject({
    code: 0,
    out: 'The rebuild of catalog is abandoned.\n',
  })
  expect(await waybill('rebuild catalog --abandon')).toMatchObject({
    code: 3,
    out: 'No rebuild of catalog is under way; would remove what earlier ones remembered.\n',
  })
  expect((await waybill('rebuild catalog --abandon --yes')).out).toContain('No rebuild of catalog is under way.')
  expect(await waybill('rebuild catalog --swap')).toMatchObject({ code: 2, err: expect.stringContaining('Say where from') })
  const unknown = await waybill('rebuild nobody --from outbox')
  expect(unknown.err).toContain('has no consumer "nobody"; it has catalog.')
})
