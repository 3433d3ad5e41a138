import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { consumerFixture } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'
import { testKafka } from '../setup/test-kafka.ts'
import { rebalanceStorm } from '../kafka/rebalance-storm.ts'

const database = await testDatabase()
const { brokers, makeTopic } = await testKafka()

test(
  'consumers that join, leave, freeze and die under load commit no more than is processed, and every event has one effect',
  { timeout: 1_800_000 },
  async () => {
    const fixture = await consumerFixture(fromPg(database.pool))
    const topic = await makeTopic({ partitions: 6 })
    const report = await rebalanceStorm({ fixture, url: database.url, brokers, topic, seed: 1, events: 1_200, incidents: 4 })
    expect(report.violations).toEqual([])
    expect(report.effects).toBe(1_200)
    expect(report.looks).toBeGreaterThan(20)
    for (const count of Object.values(report.incidents)) expect(count).toBeGreaterThan(0)
  },
)
