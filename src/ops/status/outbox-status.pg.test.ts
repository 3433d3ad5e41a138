import { expect, test } from 'vitest'
import { outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { BeginOptions, Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import type { OutboxState } from './outbox-states.ts'
import { changeLanes, listLanes, listOutbox } from './outbox-status.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('a change of lanes is given all the time that its backlog takes', async () => {
  const { outbox } = await outboxFixture(db)
  const begun: BeginOptions[] = []
  const watched: Database = {
    ...db,
    attempt: (options, work) => {
      begun.push(options)
      return db.attempt(options, work)
    },
  }
  await changeLanes(watched, outbox, { lanes: 8, actor: 'ada' })
  expect(begun.map(({ statementTimeoutMs }) => statementTimeoutMs)).toEqual([0])
  expect(await listLanes(db, outbox)).toHaveLength(8)
})

test('a list shows the oldest of all lanes, and what is in a batch under that state only', async () => {
  const { outbox, fill, dispatch } = await outboxFixture(db)
  await fill(
    Array.from({ length: 30 }, (_, nth) => `v${nth}`),
    2,
  )
  const bySeq = (await dispatch()).toSorted((a, b) => Number(a['seq']) - Number(b['seq'])).map((row) => String(row['event_id']))
  const list = async (state?: OutboxState, limit?: number): Promise<string[]> =>
    (await listOutbox(db, outbox, { state, limit, aggregateType: 'video' })).map(({ eventId }) => eventId)
  expect(await list(undefined, 7)).toEqual(bySeq.slice(0, 7))
  const [first] = await dispatch()
  const batched = (await dispatch()).filter((row) => row['lane'] === first?.['lane']).map((row) => String(row['event_id']))
  await db.query(
    `update ${outbox.tables.lane.quoted} set lock_token = gen_random_uuid(), locked_at = clock_timestamp(),
            lock_expires_at = clock_timestamp() + interval '1 hour', batch_from = 0, batch_to = 1000000 where lane = $1`,
    [first?.['lane'] as number],
  )
  expect((await list('INFLIGHT')).toSorted()).toEqual(batched.toSorted())
  expect(await list('PENDING', 60)).toEqual(bySeq.filter((id) => !batched.includes(id)))
  expect((await listOutbox(db, outbox, { limit: 60 })).map(({ eventId }) => eventId)).toEqual(bySeq)
  expect(await list('RELEASED')).toEqual([])
})
