import { drizzle } from 'drizzle-orm/node-postgres'
import knex from 'knex'
import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import postgres from 'postgres'
import { expect, test } from 'vitest'

import { endingServer, uncaughtDuring } from '../../../test/setup/ending-server.ts'
import { createSignals } from '../../core/signals.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Database } from '../query/database.ts'
import { connect } from '../connect.ts'
import { fromDrizzle } from './from-drizzle.ts'
import { fromKnex } from './from-knex.ts'
import { fromKysely } from './from-kysely.ts'
import { fromPg } from './from-pg.ts'
import { fromPostgresJs } from './from-postgres-js.ts'
import { createListener } from '../listen.ts'
import { transaction } from '../transaction/transaction.ts'

interface Opened {
  readonly db: Database<unknown>
  readonly close: () => Promise<unknown>
}

function poolOf(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url })
  // What the documentation of pg asks for.
  pool.on('error', () => undefined)
  return pool
}

const adapters: Readonly<Record<string, (url: string) => Opened | Promise<Opened>>> = {
  fromPg: (url) => {
    const pool = poolOf(url)
    return { db: fromPg(pool), close: () => pool.end() }
  },
  connect: (url) => {
    const db = connect({ url })
    return { db, close: () => db.close() }
  },
  'fromDrizzle over node-postgres': (url) => {
    const pool = poolOf(url)
    return { db: fromDrizzle(drizzle({ client: pool })), close: () => pool.end() }
  },
  fromKnex: (url) => {
    const instance = knex({ client: 'pg', connection: url, pool: { min: 0, max: 2 }, acquireConnectionTimeout: 2_000 })
    return { db: fromKnex(instance), close: () => instance.destroy() }
  },
  'fromKysely with the listener that it asks for': (url) => {
    const pool = poolOf(url).on('connect', (client) => client.on('error', () => undefined))
    const db = new Kysely({ dialect: new PostgresDialect({ pool }) })
    return { db: fromKysely(db), close: () => db.destroy() }
  },
  'fromPostgresJs without the types that it asks for at each connection': (url) => {
    const sql = postgres(url, { max: 2, connect_timeout: 2, fetch_types: false })
    return { db: fromPostgresJs(sql), close: () => sql.end({ timeout: 0 }) }
  },
}

test.each(Object.entries(adapters))(
  'a connection that ends as it is handed out fails the work and never the process: %s',
  async (_name, open) => {
    const server = await endingServer()
    const { db, close } = await open(server.url)
    const outcomes: unknown[] = []
    const uncaught = await uncaughtDuring(async () => {
      for (const work of [() => transaction(db, (tx) => tx.query('select 1')), () => db.query('select 1')]) {
        outcomes.push(
          await work().then(
            () => 'resolved',
            () => 'rejected',
          ),
        )
      }
    })
    await close()
    await server.stop()
    expect({ uncaught: uncaught.map(String), outcomes }).toEqual({ uncaught: [], outcomes: ['rejected', 'rejected'] })
  },
)

test('a listener whose connections end as they open tells of each, tries again and never ends the process', async () => {
  const server = await endingServer()
  const [clock, signals, stop] = [createFakeClock(), createSignals(), new AbortController()]
  const failures: unknown[] = []
  signals.on('listen.failed', ({ error }) => void failures.push(error))
  const listener = createListener({ url: server.url, channel: 'news', onNotification: () => {}, signals, clock })
  const uncaught = await uncaughtDuring(async () => {
    const running = listener.run({ stopping: stop.signal, aborting: new AbortController().signal })
    await eventually(async () => {
      await clock.advance(1_000)
      return failures.length >= 3
    })
    stop.abort()
    await running
  })
  await server.stop()
  expect(uncaught.map(String)).toEqual([])
})
