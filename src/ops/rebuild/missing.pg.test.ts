import { expect, test } from 'vitest'
import { consumerFixture, videos } from '../../../test/setup/consumer-fixture.ts'
import { rebuildWorld } from '../../../test/setup/rebuild-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Consumer } from '../../consumer/consumer.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { rebuild } from './rebuild.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test("the row of an aggregate that was written under positions: 'needed', and of which no event is retained, stays", async () => {
  const fixture = await consumerFixture(db)
  const { schema, outbox, broker, query } = fixture
  const consumerOf = (positions: 'every' | 'needed'): Consumer =>
    fixture
      .consumer({ positions })
      .project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
  const relay = createRelay({ db, outbox, transport: broker })
  const write = async (id: string): Promise<void> => {
    await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, id, { title: id }))
    await relay.once()
  }
  const stopFirst = fixture.start(consumerOf('needed'))
  for (const id of ['a', 'b']) await write(id)
  await fixture.settled(2)
  await stopFirst()
  const consumer = consumerOf('every')
  const stop = fixture.start(consumer)
  await write('b')
  await fixture.settled(3)
  await query(`delete from $schema.outbox where aggregate_id = 'a'`)
  const shown = (): Promise<readonly unknown[]> => query('select video_id from $schema.video_view order by 1')

  const options = { consumer, from: 'outbox', swap: true, actor: 'test', pollMs: 20 }
  await expect(rebuild(options)).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringMatching(/lacks 1 rows of .*video_view.* such as a: .*--drop-unknown/) as string,
    details: { table: `${schema}.video_view`, rows: 1 },
  })
  expect(await shown()).toEqual([{ video_id: 'a' }, { video_id: 'b' }])

  expect(await rebuild({ ...options, dropUnknown: true })).toMatchObject({ swapped: true, droppedRows: 1 })
  expect(await shown()).toEqual([{ video_id: 'b' }])
  expect(await query('select video_id from $schema.video_view_before_g2 order by 1')).toEqual([
    { video_id: 'a' },
    { video_id: 'b' },
  ])
  expect(await query(`select details->>'droppedRows' as rows from $schema.audit_log where action = 'rebuild.swap'`)).toEqual([
    { rows: '1' },
  ])
  await stop()
})

test('a row of an adopted table stays until its first event, unless the operator lets it go', async () => {
  const w = await rebuildWorld(db)
  await w.query(`insert into $schema.video_view (video_id, title, version) values ('adopted', 'old', 0), ('other', 'old', 0)`)
  await w.write('b')
  await w.settle()
  await expect(w.rebuild({ from: 'outbox', swap: true })).rejects.toMatchObject({ code: 'REFUSED', details: { rows: 2 } })
  expect(await w.count('video_view')).toBe(3)
  await w.write('adopted')
  await w.settle()
  await expect(w.rebuild({ swap: true })).rejects.toMatchObject({ code: 'REFUSED', details: { rows: 1 } })
  expect(await w.rebuild({ swap: true, dropUnknown: true })).toMatchObject({ swapped: true, droppedRows: 1 })
  expect(await w.shown()).toEqual(await w.owner())
  await w.end()
})
