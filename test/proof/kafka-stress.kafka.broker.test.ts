import { afterAll, expect, test } from 'vitest'
import type { ConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { startKafka } from '../../src/testing/servers/kafka-cluster.ts'
import { killLeaders } from '../kafka/leader-kills.ts'
import { rebalanceStorm } from '../kafka/rebalance-storm.ts'
import { stressOverKafka } from '../kafka/relay-stress.ts'
import { consumerFixture } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'
import { testKafka } from '../setup/test-kafka.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const isFull = process.env['WAYBILL_PROOF'] === 'full'
const timeout = 1_800_000

const storms: readonly (readonly [string, number, Partial<ConsumerOptions>])[] = [
  // Without `full`, the storm of the file beside this one speaks for offsets at the broker.
  ...(isFull ? [31] : []).map((seed) => ['with an inbox', seed, {}] as const),
  ...(isFull ? [31, 32] : [31]).map(
    (seed) => ['without an inbox, offsets in Postgres', seed, { offsets: 'postgres', inbox: false }] as const,
  ),
]
const storm = isFull ? { events: 6_000, incidents: 20 } : { events: 2_000, incidents: 8 }

test.each(storms)(
  'a rebalance storm commits no more than is processed, with one effect for each event: %s (seed %i)',
  { timeout },
  async (_, seed, consumer) => {
    const { brokers, makeTopic } = await testKafka()
    const fixture = await consumerFixture(db)
    const topic = await makeTopic({ partitions: 6 })
    const report = await rebalanceStorm({ fixture, url: database.url, brokers, topic, seed, ...storm, consumer })
    console.log(JSON.stringify({ seed, consumer, ...report }))
    expect(report.violations).toEqual([])
    expect(report.effects).toBe(storm.events)
    expect(await fixture.count('inbox')).toBe(consumer.inbox === false ? 0 : storm.events)
  },
)

const clusterSeeds = isFull ? [41, 42] : [41]
const cluster = await startKafka({ nodes: 3 })
afterAll(() => cluster.stop())
const size = isFull
  ? { events: 8_000, aggregates: 30, incidents: 8, kills: 4 }
  : { events: 1_500, aggregates: 16, incidents: 3, kills: 2 }

test.each(clusterSeeds)(
  'relays over a cluster keep every promise while leaders are killed and restarted (seed %i)',
  { timeout },
  async (seed) => {
    const struck = { leaderKilled: 0 }
    const report = await stressOverKafka({
      db,
      url: database.url,
      seed,
      relays: 3,
      ...size,
      leaseMs: 5_000,
      brokers: cluster.brokers,
      replicationFactor: 3,
      minInsyncReplicas: 2,
      struck,
      meanwhile: async ({ topic, arrived }) => {
        const step = size.events / (size.kills + 2)
        struck.leaderKilled = await killLeaders({ cluster, topic, times: size.kills, progress: arrived, step })
      },
    })
    console.log(JSON.stringify({ seed, ...report }))
    expect(report.violations).toEqual([])
    expect(report.events).toBeGreaterThanOrEqual(size.events)
    expect(struck.leaderKilled).toBe(size.kills)
  },
)
