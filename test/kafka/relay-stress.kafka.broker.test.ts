import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/from-pg.ts'
import { testDatabase } from '../setup/test-database.ts'
import { testKafka } from '../setup/test-kafka.ts'
import { stressOverKafka } from './relay-stress.ts'

const database = await testDatabase()
const { brokers } = await testKafka()
const db = fromPg(database.pool)

test(
  'relay processes over Kafka keep every promise while they are frozen, killed and replaced',
  { timeout: 240_000 },
  async () => {
    const single = { brokers, replicationFactor: 1, minInsyncReplicas: 1, struck: {} }
    const size = { relays: 3, events: 1_200, aggregates: 12, incidents: 4 }
    const report = await stressOverKafka({ db, url: database.url, seed: 1, ...single, ...size })
    expect(report.violations).toEqual([])
    expect(report.events).toBeGreaterThanOrEqual(size.events)
    expect(report.rolledBack).toBeGreaterThan(0)
    for (const count of Object.values(report.operated)) expect(count).toBeGreaterThan(0)
  },
)
