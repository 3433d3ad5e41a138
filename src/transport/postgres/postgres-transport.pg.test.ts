import { describe, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import { transportContract } from '../../testing/contract/transport-contract.ts'
import { postgresTransport } from './postgres-transport.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'transport' })

let topics = 0

/** A database that can be taken away. */
function breakable(): { readonly db: Queryable; down: boolean } {
  const broken = {
    down: false,
    db: {
      query: (text: string, values?: never) =>
        broken.down ? Promise.reject(new Error('connection refused')) : db.query(text, values),
    },
  }
  return broken
}

/** Leases and waits for an answer that no stall of the machine ends, and beats that are quick all the same, so that lanes soon move. */
const leaseMs = 60_000
const clock: Clock = {
  ...systemClock,
  sleep: (ms, signal) => systemClock.sleep(ms < leaseMs ? Math.min(ms, 500) : ms, signal),
}

transportContract('postgres', {
  describe,
  test,
  open: () => {
    const way = breakable()
    const transport = postgresTransport({ db: way.db, leaseMs, clock })
    return Promise.resolve({
      transport,
      makeTopic: async (consumers) => {
        const topic = `topic-${++topics}`
        for (const consumer of consumers) await transport.subscribe(topic, consumer)
        return topic
      },
      outage: () => {
        way.down = true
        return Promise.resolve(() => Promise.resolve(void (way.down = false)))
      },
      close: () => transport.close(),
    })
  },
})
