import { expect, test } from 'vitest'
import { FakeKafka } from '../../../test/kafka/fake-kafka.ts'
import { published, videos } from '../../../test/setup/consumer-fixture.ts'
import { logFixture, type LogFixture } from '../../../test/setup/log-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { kafka } from '../../transport/kafka/kafka.ts'
import { inboxTables } from './inbox.sql.ts'
import { moveOver } from './offsets.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Holds up the transaction that is to write an effect next, and resolves when one waits. */
async function holdEffects(
  w: LogFixture,
): Promise<{ readonly reached: () => Promise<unknown>; readonly release: () => Promise<void> }> {
  const client = await database.pool.connect()
  await client.query(`begin; lock table ${w.schema}.effect in share mode`)
  const waits = `select from pg_locks where relation = '${w.schema}.effect'::regclass and not granted`
  return {
    reached: () => eventually(async () => (await w.query(waits)).length > 0),
    release: async () => {
      await client.query('commit')
      client.release()
    },
  }
}

const many = (name: string, count: number, first = 0): ReturnType<typeof published>[] =>
  Array.from({ length: count }, (_, i) => published(`${name}${first + i}`, 1))

test('an offset of a topic that was deleted is not gone on from in the one that was made again, and that is told', async () => {
  const w = await logFixture(db)
  w.log.topicId = 'first'
  w.log.append('0', [published('a', 1), published('b', 1), published('c', 1)])
  w.log.append('1', [published('d', 1)])
  const first = w.start(w.recorder())
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0', '1'])
  await eventually(async () => (await w.offsets()).join() === '0 3,1 1')
  await first()

  w.log.recreate('second')
  w.log.append(
    '0',
    Array.from({ length: 5 }, (_, i) => published(`new${i}`, 1)),
  )
  const second = w.start(w.recorder({ batchSize: 2 }))
  await eventually(() => w.log.members.length === 2)
  await w.log.assign(w.log.members[1], ['0', '1'])
  await eventually(async () => (await w.offsets()).join() === '0 5,1 1')
  await second()
  expect((await w.effects()).slice(4)).toEqual(Array.from({ length: 5 }, (_, i) => `new${i} 1`))
  const told = w.heard('consumer.disturbed').map(({ error }) => (error as Error).message)
  expect(told).toEqual([expect.stringMatching(/partitions 0, 1 .* another topic/)])

  // From here on it is the second topic's, and a restart goes on.
  w.log.append('0', [published('new5', 1)])
  const third = w.start(w.recorder())
  await eventually(() => w.log.members.length === 3)
  await w.log.assign(w.log.members[2], ['0'])
  await eventually(async () => (await w.offsets())[0] === '0 6')
  await third()
  expect(await w.effects()).toHaveLength(10)
})

test('an offset from before topics had ids is believed, and is of the topic that is there when it is next read', async () => {
  const w = await logFixture(db)
  w.log.append('0', [published('a', 1), published('b', 1)])
  await w.query(
    `insert into $schema.consumer_offset (consumer, generation, topic, partition, next_offset) values ('catalog', 1, $1, '0', 1)`,
    [videos.topic],
  )
  const ids = (): Promise<readonly unknown[]> => w.query('select next_offset::int, topic_id from $schema.consumer_offset')
  w.log.topicId = 'first'
  const first = w.start(w.recorder())
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  expect(await ids()).toMatchObject([{ topic_id: 'first' }])
  await eventually(async () => (await w.effects()).length === 1)
  await first()
  expect(await w.effects()).toEqual(['b 1'])
  expect(await ids()).toEqual([{ next_offset: 2, topic_id: 'first' }])
})

test('who has a stretch of another topic in hand than the one that is stored changes nothing', async () => {
  const w = await logFixture(db)
  const scope = { tables: inboxTables(w.schema), consumer: 'catalog', generation: 1 }
  const move = (...places: Parameters<typeof moveOver>[2]): Promise<ReadonlyMap<string, bigint>> =>
    transaction(db, (tx) => moveOver(tx, scope, places))
  const place = { topic: 't', partition: '0', offset: 7n, from: 7n, begins: false }
  await move({ ...place, begins: true, topicId: 'first' })
  await expect(move({ ...place, offset: 8n, from: 8n, topicId: 'second' })).rejects.toMatchObject({ code: 'ABORTED' })
  // It began when nothing was stored, and so it replaces nothing.
  await expect(move({ ...place, offset: 0n, from: 0n, begins: true, topicId: 'second' })).rejects.toMatchObject({
    code: 'ABORTED',
  })
  const begins = { ...place, offset: 0n, from: 0n, begins: true, topicId: 'second', replaces: 'first' }
  expect([...(await move(begins)).values()]).toEqual([0n])
  expect(await w.offsets()).toEqual(['0 1'])
  await expect(move({ ...place, offset: 8n, from: 8n, topicId: 'first' })).rejects.toMatchObject({ code: 'ABORTED' })
  // The same stretch once more is done, and one without an id is believed.
  expect([...(await move(begins)).values()]).toEqual([1n])
  expect([...(await move({ ...place, offset: 1n, from: 1n })).values()]).toEqual([1n])
  expect(await w.query('select next_offset::int, topic_id from $schema.consumer_offset')).toEqual([
    { next_offset: 2, topic_id: 'second' },
  ])
})

test.each([
  { at: 'where the new one is', hole: 0 },
  { at: 'far ahead of it', hole: 200 },
])('what waits of a topic that is gone, $at, takes nothing of the one that was made again along', async ({ hole }) => {
  const w = await logFixture(db)
  w.log.topicId = 'first'
  w.log.append('0', many('old', 1))
  const stop = w.start(w.recorder())
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => (await w.effects()).length === 1)
  const held = await holdEffects(w)
  w.log.append('0', many('old', 1, 1), { hole })
  await held.reached()
  w.log.append('0', many('old', 8, 2))
  w.log.recreate('second')
  w.log.append('0', many('new', 3))
  await w.log.assign(w.log.members[0], ['0'])
  await held.release()
  await eventually(async () => (await w.effects()).includes('new2 1'))
  w.log.append('0', many('new', 7, 3))
  await eventually(() => w.log.members[0]?.inHand === 0)
  await stop()
  expect((await w.effects()).filter((name) => name.startsWith('new'))).toEqual(many('new', 10).map((_, i) => `new${i} 1`))
  expect(await w.query('select next_offset::int, topic_id from $schema.consumer_offset')).toEqual([
    { next_offset: 10, topic_id: 'second' },
  ])
})

test.each(['nothing', 'the topic before'])(
  'a batch of a topic that is gone, committed after the new one was begun with, stops nobody where %s was stored',
  async (stored) => {
    const w = await logFixture(db)
    const stop = w.start(w.recorder())
    await eventually(() => w.log.members.length === 1)
    if (stored !== 'nothing') {
      w.log.topicId = 'zeroth'
      w.log.append('0', many('older', 2))
      await w.log.assign(w.log.members[0], ['0'])
      await eventually(async () => (await w.offsets())[0] === '0 2')
    }
    w.log.recreate('first')
    const held = await holdEffects(w)
    await w.log.assign(w.log.members[0], ['0'])
    w.log.append('0', many('old', 5))
    await held.reached()
    w.log.recreate('second')
    w.log.append('0', many('new', 3))
    await w.log.assign(w.log.members[0], ['0'])
    await held.release()
    await eventually(async () => (await w.effects()).includes('new2 1'))
    await stop()
    expect(await w.query('select next_offset::int, topic_id from $schema.consumer_offset')).toEqual([
      { next_offset: 3, topic_id: 'second' },
    ])
    expect((await w.effects()).slice(-8)).toEqual([...many('old', 5).map((_, i) => `old${i} 1`), 'new0 1', 'new1 1', 'new2 1'])
  },
)

test.each(['stopped', 'running'])(
  'a Kafka topic that was made again while its consumer was %s is read to its last record',
  async (was) => {
    const w = await logFixture(db)
    const broker = new FakeKafka(1)
    const transport = kafka({ brokers: ['nowhere:1'], client: () => broker.client(), fetchMaxWaitMs: 20, heartbeatMs: 5 })
    const append = (name: string, count: number): void => {
      for (let i = 0; i < count; i += 1) {
        const { orderingKey = '', attributes, body } = published(`${name}${i}`, 1)
        broker.append(0, orderingKey, { value: body, headers: Object.entries(attributes) })
      }
    }
    append('old', 5)
    let stop = w.start(w.recorder({ transport }))
    await eventually(async () => (await w.offsets())[0] === '0 5')
    if (was === 'stopped') await stop()
    broker.recreate()
    append('new', 9)
    if (was === 'stopped') stop = w.start(w.recorder({ transport }))
    await eventually(async () => (await w.offsets())[0] === '0 9')
    await stop()
    await transport.close()
    expect((await w.effects()).slice(5)).toEqual(Array.from({ length: 9 }, (_, i) => `new${i} 1`))
  },
)
