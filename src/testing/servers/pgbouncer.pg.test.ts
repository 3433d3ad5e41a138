import pg from 'pg'
import { expect, inject, test } from 'vitest'

import { testDatabase } from '../../../test/setup/test-database.ts'
import { findPgBouncer, startPgBouncer } from './pgbouncer.ts'

const db = await testDatabase()

test.skipIf(findPgBouncer() === undefined)('session state does not survive a transaction behind PgBouncer', async () => {
  const bouncer = await startPgBouncer(inject('postgres').directUrl)
  const clients = [1, 2].map(() => new pg.Client({ connectionString: bouncer.url(db.directUrl) }))
  try {
    for (const client of clients) await client.connect()
    const pids = []
    for (const client of clients) pids.push((await client.query('select pg_backend_pid() as pid')).rows[0].pid)
    expect(pids[0]).toBe(pids[1])
    await clients[0]?.query("set application_name = 'left behind'")
    expect((await clients[1]?.query('show application_name'))?.rows).toEqual([{ application_name: 'left behind' }])
  } finally {
    for (const client of clients) await client.end()
    await bouncer.stop()
  }
})
