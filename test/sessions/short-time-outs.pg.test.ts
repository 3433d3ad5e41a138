import pg from 'pg'
import { expect, test } from 'vitest'

import { createOutboxRetention } from '../../src/outbox/operate/retention.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { steadyStatements } from '../../src/postgres/transaction/steady-statements.ts'
import { memory } from '../../src/transport/memory/memory.ts'
import { postgresTransport } from '../../src/transport/postgres/postgres-transport.ts'
import { outboxFixture } from '../setup/outbox-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const shortMs = 300

/** A pool whose role has a short statement_timeout, as hosted databases set it. */
function shortPool(): pg.Pool {
  return new pg.Pool({ connectionString: database.directUrl, options: `-c statement_timeout=${shortMs}` })
}

async function slowDown(schema: string, table: string, event: 'insert' | 'delete'): Promise<void> {
  await database.pool.query(`
    create function ${schema}.dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(${(shortMs * 2) / 1000}); return null; end $$;
    create trigger dawdle before ${event} on ${schema}.${table} for each statement execute function ${schema}.dawdle()`)
}

test('retention removes a batch that takes longer than its role’s statement_timeout', async () => {
  const fixture = await outboxFixture(fromPg(database.pool))
  const { outbox } = fixture
  await fixture.fill(['a'], 3)
  await fixture.relay(memory()).once()
  await slowDown(outbox.tables.schema, 'outbox', 'delete')
  const pool = shortPool()
  await createOutboxRetention({ db: fromPg(pool), outbox, eventsMs: 0 }).once(new AbortController().signal)
  expect((await database.pool.query(`select from ${outbox.tables.schema}.outbox`)).rowCount).toBe(0)
  await pool.end()
})

test('a subscription whose making takes longer than its role’s statement_timeout is made', async () => {
  const { outbox } = await outboxFixture(fromPg(database.pool))
  const { schema } = outbox.tables
  await slowDown(schema, 'transport_subscription', 'insert')
  const pool = shortPool()
  const transport = postgresTransport({ db: fromPg(pool), schema })
  await transport.subscribe('video.events', 'catalog')
  expect((await database.pool.query(`select from ${schema}.transport_subscription`)).rowCount).toBe(1)
  await transport.close()
  await pool.end()
})

test('a statement that its session refused once goes in a transaction from then on, and others do not', async () => {
  const pool = new pg.Pool({ connectionString: database.directUrl, options: `-c default_transaction_isolation=serializable` })
  const db = fromPg(pool)
  const sent: string[] = []
  const noted: Database = {
    query: (text, values) => {
      sent.push(text)
      return db.query(text, values)
    },
    attempt: (options, work) => {
      sent.push(options.isolation)
      return db.attempt(options, work)
    },
  }
  const needy = `do $$ begin if current_setting('transaction_isolation') <> 'read committed' then raise exception using errcode = '25001'; end if; end $$`
  const steady = steadyStatements(noted, 0)
  for (const text of [needy, needy, 'select 1', 'select 1']) await steady.query(text)
  expect(sent).toEqual([needy, 'read committed', 'read committed', 'select 1', 'select 1'])
  await expect(steady.query('select 1/0')).rejects.toMatchObject({ code: '22012' })
  await pool.end()
})
