/** What nobody waits for any more leaves its connection, and the pool, here of one, goes on with another one. */
import { afterAll, expect, test } from 'vitest'

import { adapters, openDrizzleWithReplicas, openPg } from '../../../test/contract/pools-of-one.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { systemClock } from '../../core/service/clock.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { startFaultProxy } from '../../testing/faults/fault-proxy.ts'
import { isCommitRequest, isStatement, postgresFrames } from '../../testing/faults/postgres-frames.ts'
import type { BeginOptions, Interruptible, Queryable, QueryResult } from '../query/database.ts'
import { isConnectionLoss } from '../query/sql-state.ts'
import { interrupt } from '../transaction/tx-scope.ts'

const database = await testDatabase()
const { hostname, port } = new URL(database.directUrl)
const proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
afterAll(() => proxy.stop())

const options: BeginOptions = {
  isolation: 'read committed',
  statementTimeoutMs: 60_000,
  lockTimeoutMs: 60_000,
  idleInTransactionTimeoutMs: 60_000,
  synchronousCommit: 'on',
}

const { fromPg, fromDrizzle, fromKnex, fromTypeOrm } = adapters
/** Those that have the connection in their hands. */
const closing = {
  fromPg,
  'fromPg with pipelines': (url: string) => openPg(url, { pipeline: true }),
  fromDrizzle,
  'fromDrizzle with replicas': openDrizzleWithReplicas,
  fromKnex,
  fromTypeOrm,
} as Readonly<typeof adapters>

const places: Readonly<Record<string, (message: Buffer) => boolean>> = {
  BEGIN: isStatement(/^\s*(begin|start)/i),
  'a statement': isStatement(/as said/),
  COMMIT: isCommitRequest,
}

const said = [`select $1::text as said`, ['yes']] as const
const say = (db: Queryable): Promise<QueryResult> => db.query(...said)

test.each(Object.entries(closing).flatMap(([name, open]) => Object.keys(places).map((place) => [name, place, open] as const)))(
  '%s closes the connection of a transaction that was given up at %s, and has a place for the next one',
  async (name, place, open) => {
    const { db, close } = await open(proxy.url(database.directUrl))
    const fault = `${name} ${place}`
    proxy.arm({ name: fault, direction: 'toServer', on: { match: places[place]! }, action: 'stall' })
    const givenUp = new AbortController()
    const failing = db.attempt({ ...options, givenUp: givenUp.signal }, say)
    failing.catch(() => undefined)
    await proxy.fired(fault)
    const next = db.attempt(options, say)
    givenUp.abort()
    await expect(failing).rejects.toSatisfy(isConnectionLoss)
    expect((await next).rows).toEqual([{ said: 'yes' }])
    await close()
  },
)

test.each(Object.entries(closing))(
  '%s closes the connection of a single statement that was given up, and has a place for the next one',
  async (name, open) => {
    const { db, close } = await open(proxy.url(database.directUrl))
    const statements: Interruptible = db
    proxy.arm({ name, direction: 'toServer', on: { match: places['a statement']! }, action: 'stall' })
    const givenUp = new AbortController()
    const failing = statements.query(...said, { givenUp: givenUp.signal })
    failing.catch(() => undefined)
    await proxy.fired(name)
    const next = say(db)
    givenUp.abort()
    await expect(failing).rejects.toSatisfy(isConnectionLoss)
    expect((await next).rows).toEqual([{ said: 'yes' }])
    const another = await statements.query(...said, { givenUp: new AbortController().signal })
    expect(another.rows).toEqual([{ said: 'yes' }])
    await close()
  },
)

test.each(Object.entries(closing))(
  '%s closes the connection of a ROLLBACK that is not answered in time, and its caller hears why it rolled back',
  async (name, open) => {
    const { db, close } = await open(proxy.url(database.directUrl))
    const fault = `${name} ROLLBACK`
    proxy.arm({ name: fault, direction: 'toServer', on: { match: isStatement(/^\s*rollback/i) }, action: 'stall' })
    const failing = db.attempt({ ...options, statementTimeoutMs: 500 }, () => Promise.reject(new Error('card declined')))
    await expect(failing).rejects.toThrow('card declined')
    expect(proxy.firings(fault)).toBe(1)
    expect((await db.attempt(options, say)).rows).toEqual([{ said: 'yes' }])
    await close()
  },
)

test.each(Object.entries(closing))(
  '%s closes the connection of a statement that is to be ended, where no other is to be had to say so',
  { timeout: 60_000 },
  async (_name, open) => {
    const { db, close } = await open(database.url)
    const hanging = `select from pg_stat_activity where datname = current_database() and query like 'select pg_sleep(3600)%' and state = 'active'`
    const failing = db.attempt({ ...options, statementTimeoutMs: 3_600_000 }, async (tx) => {
      tx.query('select pg_sleep(3600)::text').catch(() => undefined)
      await eventually(async () => (await database.pool.query(hanging)).rowCount === 1, { intervalMs: 1 })
      // Its pool has one connection, and that is this one.
      await interrupt(db, tx, systemClock)
      throw new Error('given up')
    })
    await expect(failing).rejects.toThrow('given up')
    expect((await db.attempt(options, say)).rows).toEqual([{ said: 'yes' }])
    // The request went out with the new connection, so its locks are free too.
    await eventually(async () => (await database.pool.query(hanging)).rowCount === 0, { intervalMs: 1 })
    await close()
  },
)
