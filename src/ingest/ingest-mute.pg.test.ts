/** Connections that fall silent do not use up the pool of an ingest: each is given up, and facts go on through others. */
import pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { reading, readingKey, readings } from '../../test/ingest/readings.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { createOutbox } from '../outbox/outbox.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { migrate } from '../postgres/schema/migrate.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { startFaultProxy } from '../testing/faults/fault-proxy.ts'
import { isStatement, postgresFrames } from '../testing/faults/postgres-frames.ts'
import { createIngest } from './ingest.ts'

const database = await testDatabase()
await migrate(fromPg(database.pool), { schema: 'waybill', service: 'ingest-test' })
const { hostname, port } = new URL(database.directUrl)
const proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
afterAll(() => proxy.stop())

test('a pool all of whose connections fell silent takes facts again, once they are given up', async () => {
  const clock = createFakeClock()
  const pool = new pg.Pool({ connectionString: proxy.url(database.directUrl), max: 2 })
  pool.on('error', () => undefined)
  const ingest = createIngest({
    event: readings.ReadingTaken,
    key: readingKey,
    to: { db: fromPg(pool), outbox: createOutbox() },
    clock,
  })
  for (const n of [1, 2]) {
    const name = `silent ${n}`
    proxy.arm({ name, direction: 'toServer', on: { match: isStatement(/^\s*begin/) }, action: 'stall' })
    const asked = ingest.accept(reading(n))
    await proxy.fired(name)
    // Past the time-out, and past the wait of the breaker behind it.
    await clock.advance(20_000)
    expect(await asked).toMatchObject({ status: 'refused', code: 'UNAVAILABLE', retryable: true })
  }
  expect([pool.totalCount, pool.idleCount]).toEqual([2, 0])
  await clock.advance(65_000)
  expect(await ingest.accept(reading(3))).toMatchObject({ status: 'accepted' })
  await ingest.close()
  proxy.cut()
  await pool.end()
})
