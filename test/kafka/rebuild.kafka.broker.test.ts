import { expect, test } from 'vitest'
import { abandonRebuild } from '../../src/ops/rebuild/rebuild.ts'
import type { RebuildProgress } from '../../src/ops/rebuild/run.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { connectKafka } from '../../src/transport/kafka/client/connect.ts'
import type { KafkaOptions } from '../../src/transport/kafka/kafka-options.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import { videosOn } from '../setup/consumer-fixture.ts'
import { rebuildWorld, standingClock, type RebuildWorld } from '../setup/rebuild-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'
import { testKafka } from '../setup/test-kafka.ts'
import { readTopic } from './read-topic.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const { brokers, makeTopic } = await testKafka()
const ids = Array.from({ length: 20 }, (_, i) => `v${String(i).padStart(2, '0')}`)

async function kafkaWorld(topic: string, options: Partial<KafkaOptions> = {}): Promise<RebuildWorld> {
  const times = { heartbeatMs: 50, sessionTimeoutMs: 60_000, fetchMaxWaitMs: 50 }
  const transport = kafka({ brokers, minInsyncReplicas: 1, ...times, ...options })
  return await rebuildWorld(db, { transport, videos: videosOn(topic) })
}

test('a rebuild over Kafka from the earliest offsets, under live writes, ends with the table as the owner has it', async () => {
  const w = await kafkaWorld(await makeTopic())
  for (const id of [...ids, ...ids]) await w.write(id)
  await w.remove('v07')
  await w.settle()
  await w.query(`update $schema.video_view set title = 'wrong' where video_id < 'v05'`)
  await w.query(`delete from $schema.video_view where video_id = 'v13'`)
  const stopWriting = w.writing(['new', ...ids.slice(15)])
  const report = await w.rebuild({ from: 'earliest', swap: true })
  expect(report).toMatchObject({ swapped: true, generation: 2 })
  expect(await stopWriting()).toBeGreaterThan(0)
  await w.settle()
  expect(await w.shown()).toEqual(await w.owner())
  expect(w.handledAgain()).toBe(0)
  await w.end()
})

test('a rebuild over Kafka from a time has the records since then, names what is older as missing, and from earliest has that too', async () => {
  const w = await kafkaWorld(await makeTopic())
  await w.write('old')
  for (const id of ids) await w.write(id)
  await w.settle()
  const settledMs = Date.now()
  // No record so far has this time.
  await eventually(() => Date.now() > settledMs)
  const from = new Date().toISOString()
  for (const id of ids) await w.write(id)
  await w.settle()
  await w.query(`update $schema.consumer_position set updated_at = clock_timestamp() - interval '1 minute'`)
  const clock = standingClock()
  const onProgress = ({ reached }: RebuildProgress): void => {
    if (reached === 20) clock.advance(50)
  }
  await expect(w.rebuild({ from, swap: true, stallMs: 100, clock, onProgress })).rejects.toMatchObject({
    code: 'REFUSED',
    details: { reached: 20, total: 21 },
  })
  expect(await w.query('select min(version)::text as oldest, count(*)::int as n from $schema.video_view_g2')).toEqual([
    { oldest: '2', n: 20 },
  ])
  await abandonRebuild({ consumer: w.catalog, actor: 'test' })
  expect(await w.rebuild({ from: 'earliest', compare: true, swap: true })).toMatchObject({
    swapped: true,
    aggregates: 21,
    comparisons: [{ checksumsMatch: true }],
  })
  expect(await w.shown()).toEqual(await w.owner())
  await w.end()
})

test('a rebuild over Kafka from a compacted topic, which has only the last states and deletes, ends with the same table', async () => {
  // Only what is no longer the active segment is compacted, so that one is short.
  const settings = { 'cleanup.policy': 'compact', 'segment.ms': '50', 'min.cleanable.dirty.ratio': '0.01' }
  const topic = await makeTopic({ partitions: 1, settings })
  const w = await kafkaWorld(topic, { compacted: [videosOn(topic)] })
  for (const id of [...ids, ...ids, ...ids]) await w.write(id)
  await w.remove('v07')
  const client = connectKafka({ brokers })
  const kept = async (): Promise<readonly string[]> =>
    (await readTopic(client, topic)).map(({ attributes: of }) => `${of['aggregate_id']} ${of['version']}`)
  await eventually(
    async () => {
      // Each of these may begin a new segment.
      await w.write('last')
      expect((await kept()).filter((each) => !each.startsWith('last')).toSorted()).toEqual(
        ids.map((id) => (id === 'v07' ? 'v07 4' : `${id} 3`)),
      )
    },
    { intervalMs: 200 },
  )
  await client.close()
  // The live consumer has read what compaction took before, or has not.
  await eventually(async () => expect(await w.shown()).toEqual(await w.owner()))
  expect(await w.rebuild({ from: 'earliest', compare: true, swap: true })).toMatchObject({
    swapped: true,
    aggregates: 21,
    comparisons: [{ checksumsMatch: true }],
  })
  expect(await w.shown()).toEqual(await w.owner())
  await w.end()
})
