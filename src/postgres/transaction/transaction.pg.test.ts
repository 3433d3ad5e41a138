import pg from 'pg'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'

import { testDatabase } from '../../../test/setup/test-database.ts'
import { defaults } from '../../core/defaults.ts'
import { seededRandom } from '../../core/service/random.ts'
import { createSignals, type Signals } from '../../core/signals.ts'
import type { Clock } from '../../core/service/clock.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { startFaultProxy } from '../../testing/faults/fault-proxy.ts'
import { isCommitRequest, postgresFrames } from '../../testing/faults/postgres-frames.ts'
import type { PgPool } from '../adapters/borrow-client.ts'
import type { Tx } from '../query/database.ts'
import { fromPg } from '../adapters/from-pg.ts'
import { isConnectionLoss, sqlState } from '../query/sql-state.ts'
import { transaction, type TransactionOptions } from './transaction.ts'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url, max: 4 })
pool.on('error', () => undefined)
const db = fromPg(pool)
afterAll(() => pool.end())

beforeEach(async () => {
  await database.pool.query(`
    drop table if exists account;
    create table account (id int primary key, balance int not null);
    insert into account values (1, 100), (2, 100)`)
})

/** A clock that never waits and remembers for how long it should have. */
function impatient(): Clock & { readonly slept: number[] } {
  const slept: number[] = []
  return { slept, nowMs: () => 0, monotonicMs: () => slept.length, sleep: async (ms) => void slept.push(ms) }
}

describe('a closure that lost a race', () => {
  test('is run again as a whole, after jittered waits that come from the given randomness', async () => {
    const run = async (): Promise<{ slept: number[]; retried: Signals['transaction.retried'][] }> => {
      const clock = impatient()
      const signals = createSignals()
      const retried: Signals['transaction.retried'][] = []
      signals.on('transaction.retried', (event) => retried.push(event))
      let runs = 0
      const options: TransactionOptions = { isolation: 'repeatable read', clock, signals, random: seededRandom(7) }
      await transaction(db, (tx) => loseUntil(tx, 4, (runs += 1)), options)
      expect(runs).toBe(4)
      return { slept: clock.slept, retried }
    }
    const { slept, retried } = await run()
    expect(retried.map(({ attempt, sqlState: state }) => [attempt, state])).toEqual([1, 2, 3].map((n) => [n, '40001']))
    expect(retried.map(({ delayMs }) => delayMs)).toEqual(slept)
    const { firstMs } = defaults.transaction.retryBackoff
    slept.forEach((ms, i) => expect(ms).toBeLessThanOrEqual(firstMs * 2 ** i))
    expect(new Set(slept).size).toBeGreaterThan(1)
    expect((await run()).slept).toEqual(slept)
  })

  test('is given up after as many retries as were allowed, with the server’s own error', async () => {
    for (const retries of [0, 2]) {
      const clock = impatient()
      let runs = 0
      const work = transaction(db, (tx) => loseUntil(tx, Infinity, (runs += 1)), { isolation: 'serializable', retries, clock })
      expect(await work.catch(sqlState)).toBe('40001')
      expect([runs, clock.slept.length]).toEqual([retries + 1, retries])
    }
  })

  test('leaves nothing of its failed runs behind', async () => {
    let runs = 0
    const work = async (tx: Tx): Promise<void> => {
      runs += 1
      await tx.query('insert into account values ($1::int, 0)', [10 + runs])
      await loseUntil(tx, 3, runs)
    }
    await transaction(db, work, { isolation: 'repeatable read', clock: impatient() })
    expect((await database.pool.query('select id from account where id > 10')).rows).toEqual([{ id: 13 }])
  })

  test('is run again when it was the victim of a deadlock, and both sides commit', async () => {
    const held: Record<number, PromiseWithResolvers<void>> = { 1: Promise.withResolvers(), 2: Promise.withResolvers() }
    // The victim comes back when the survivor is done; earlier, it could meet it again.
    const survivor = Promise.withResolvers<void>()
    const clock = { ...impatient(), sleep: () => survivor.promise }
    let runs = 0
    const take = (first: 1 | 2, second: 1 | 2): Promise<void> =>
      transaction(
        db,
        async (tx) => {
          runs += 1
          await tx.query('update account set balance = balance + 1 where id = $1::int', [first])
          held[first]?.resolve()
          await held[second]?.promise
          await tx.query('update account set balance = balance + 1 where id = $1::int', [second])
        },
        { clock },
      ).then(survivor.resolve)
    await Promise.all([take(1, 2), take(2, 1)])
    expect(runs).toBe(3)
    expect((await database.pool.query('select balance from account order by id')).rows).toEqual([
      { balance: 102 },
      { balance: 102 },
    ])
  })
})

describe('isolation', () => {
  test.each([
    ['read committed', 'sees what others commit meanwhile', 200],
    ['repeatable read', 'keeps its first look', 100],
    ['serializable', 'keeps its first look', 100],
  ] as const)('%s %s', async (isolation, _does, second) => {
    const seen: number[] = []
    const look = async (tx: Tx): Promise<void> => {
      const { rows } = await tx.query('select balance from account where id = 1')
      seen.push((rows[0] as { balance: number }).balance)
    }
    const work = async (tx: Tx): Promise<void> => {
      await look(tx)
      await database.pool.query('update account set balance = 200 where id = 1')
      await look(tx)
    }
    await transaction(db, work, { isolation })
    expect(seen).toEqual([100, second])
  })

  test('write skew is possible below serializable and impossible there', async () => {
    // Each takes everything from its own account if the two together allow it.
    const drain = async (isolation: 'repeatable read' | 'serializable'): Promise<number> => {
      await database.pool.query('update account set balance = 100')
      const barrier = Promise.withResolvers<void>()
      let arrived = 0
      const withdraw = (id: number): Promise<void> =>
        transaction(
          db,
          async (tx) => {
            const { rows } = await tx.query('select sum(balance)::int as total from account')
            if ((arrived += 1) === 2) barrier.resolve()
            await barrier.promise
            if ((rows[0] as { total: number }).total < 200) return
            await tx.query('update account set balance = balance - 200 where id = $1::int', [id])
          },
          { isolation, clock: impatient() },
        )
      await Promise.all([withdraw(1), withdraw(2)])
      const { rows } = await database.pool.query('select sum(balance)::int as total from account')
      return rows[0].total
    }
    expect(await drain('repeatable read')).toBe(-200)
    expect(await drain('serializable')).toBe(0)
  })

  test('an insert that would do nothing on conflict is run again under a snapshot that could not see the winner', async () => {
    const results: number[] = []
    const work = async (tx: Tx): Promise<void> => {
      await tx.query('select 1 from account')
      if (results.length === 0 && (results.push(-1), true)) await database.pool.query('insert into account values (3, 0)')
      results.push((await tx.query('insert into account values (3, 1) on conflict do nothing')).rowCount)
    }
    await transaction(db, work, { isolation: 'repeatable read', clock: impatient() })
    expect(results).toEqual([-1, 0])
  })
})

describe('the pool', () => {
  const single = new pg.Pool({ connectionString: database.url, max: 1 })
  single.on('error', () => undefined)
  const one = fromPg(single)
  afterAll(() => single.end())
  const state = async (): Promise<unknown> => {
    const client = await single.connect()
    try {
      const { rows } = await client.query<{ statement: string; lock: string }>(
        `select current_setting('statement_timeout') as statement, current_setting('lock_timeout') as lock`,
      )
      return { ...rows[0], status: client.getTransactionStatus() }
    } finally {
      client.release()
    }
  }
  const clean = { statement: '0', lock: '0', status: 'I' }

  test.each([
    ['a statement that took too long', 'select pg_sleep(30)', { statementTimeoutMs: 30 }, '57014'],
    ['a lock that was not free', 'select * from account for update', { lockTimeoutMs: 30 }, '55P03'],
    ['a failed statement', 'select 1/0', {}, '22012'],
  ] as const)('is as before after %s', async (_name, text, options, code) => {
    const holder = await database.pool.connect()
    try {
      await holder.query('begin; select * from account for update')
      expect(await transaction(one, (tx) => tx.query(text), options).catch(sqlState)).toBe(code)
    } finally {
      await holder.query('rollback')
      holder.release()
    }
    expect(await state()).toEqual(clean)
    expect(single.totalCount).toBe(1)
  })

  test('is as before after BEGIN was refused half-way', async () => {
    const work = transaction(fromPg(spoiltBegin(single)), (tx) => tx.query('select 1'))
    expect(await work.catch(sqlState)).toBe('22012')
    expect(await state()).toEqual(clean)
    expect(single.totalCount).toBe(1)
  })

  test('replaces a connection that the server closed while the closure was thinking', async () => {
    const seen: unknown[] = []
    const pid = async (tx: Tx): Promise<unknown> =>
      ((await tx.query('select pg_backend_pid() as pid')).rows[0] as { pid: unknown }).pid
    const work = transaction(one, async (tx) => {
      seen.push(await pid(tx))
      await database.pool.query('select pg_terminate_backend($1)', seen)
      await eventually(
        async () => (await database.pool.query('select from pg_stat_activity where pid = $1', seen)).rowCount === 0,
      )
      await tx.query('select 1')
    })
    await expect(work).rejects.toSatisfy(isConnectionLoss)
    expect(seen).not.toContain(await transaction(one, pid))
    expect(await state()).toEqual(clean)
  })

  test('replaces a connection on which the driver stopped waiting: its statement may still run', async () => {
    const before = await transaction(one, (tx) => tx.query('select pg_backend_pid() as pid'))
    const impatientQuery = { text: 'select pg_sleep(600)', query_timeout: 20 } as pg.QueryConfig
    // The server sets it no time: whoever is slow, it is the driver that stops waiting.
    const work = transaction(one, (tx) => tx.native.query(impatientQuery), { statementTimeoutMs: 0 })
    await expect(work).rejects.toThrow('Query read timeout')
    expect(await state()).toEqual(clean)
    const after = await transaction(one, (tx) => tx.query('select pg_backend_pid() as pid'))
    expect(after.rows).not.toEqual(before.rows)
    await database.pool.query('select pg_terminate_backend(pid) from pg_stat_activity where query = $1', [impatientQuery.text])
  })

  test('replaces a connection whose closure paused longer than allowed', async () => {
    const work = transaction(
      one,
      async (tx) => {
        const { rows } = await tx.query('select pg_backend_pid() as pid')
        const { pid } = rows[0] as { pid: number }
        await eventually(
          async () => (await database.pool.query('select from pg_stat_activity where pid = $1', [pid])).rowCount === 0,
        )
        await tx.query('select 1')
      },
      { idleInTransactionTimeoutMs: 30 },
    )
    await expect(work).rejects.toSatisfy(isConnectionLoss)
    expect(await state()).toEqual(clean)
  })
})

describe('options', () => {
  test('a misspelt or impossible option is refused before anything is sent', async () => {
    const never = async (): Promise<never> => expect.unreachable('the closure ran')
    await expect(transaction(db, never, { isolaton: 'serializable' } as TransactionOptions)).rejects.toThrow(
      /Did you mean "isolation"/,
    )
    await expect(transaction(db, never, { statementTimeoutMs: -1 })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    const evil = { isolation: 'serializable; drop table account' } as unknown as TransactionOptions
    await expect(transaction(db, never, evil)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })

  test('a pool that no adapter has wrapped is refused with a sentence that says what to do', async () => {
    await expect(transaction(pool as never, async () => 1)).rejects.toThrow(/db must come from an adapter: fromPg\(pool\)/)
  })
})

test('a COMMIT that is lost every time is given up as what it is: rolled back, so it may be tried again', async () => {
  const { hostname, port } = new URL(database.url)
  const proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
  const broken = new pg.Pool({ connectionString: proxy.url(database.url), max: 1 })
  broken.on('error', () => undefined)
  const signals = createSignals()
  const outcomes: string[] = []
  signals.on('transaction.unknown', ({ outcome }) => outcomes.push(outcome))
  proxy.arm({ name: 'all', direction: 'toServer', on: { match: isCommitRequest }, action: 'cut', times: 3 })
  const work = transaction(fromPg(broken), (tx) => tx.query('insert into account values (9, 9)'), { retries: 2, signals })
  await expect(work).rejects.toMatchObject({ code: 'UNAVAILABLE', retryable: true, cause: { code: 'COMMIT_UNKNOWN' } })
  expect([outcomes, proxy.firings('all')]).toEqual([['rolled-back', 'rolled-back', 'rolled-back'], 3])
  expect((await database.pool.query('select from account where id = 9')).rowCount).toBe(0)
  await broken.end()
  await proxy.stop()
})

test('a COMMIT that is lost in another database is not looked up in this one, and the closure is not run again', async () => {
  const { hostname, port } = new URL(database.url)
  const proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
  const other = new pg.Pool({ connectionString: proxy.url(database.url), max: 1 })
  other.on('error', () => undefined)
  proxy.arm({ name: 'inner', direction: 'toServer', on: { match: isCommitRequest }, action: 'cut' })
  let runs = 0
  const work = transaction(db, async (tx) => {
    runs += 1
    await tx.query('insert into account values (9, 9)')
    await transaction(fromPg(other), (inner) => inner.query('insert into account values (10, 9)'), { onUnknown: 'throw' })
  })
  await expect(work).rejects.toMatchObject({ code: 'COMMIT_UNKNOWN' })
  expect([runs, proxy.firings('inner')]).toEqual([1, 1])
  expect((await database.pool.query('select from account where id > 2')).rowCount).toBe(0)
  await other.end()
  await proxy.stop()
})

/** Loses against a concurrent writer until the given run. */
async function loseUntil(tx: Tx, winner: number, run: number): Promise<void> {
  await tx.query('select balance from account where id = 1')
  if (run < winner) await database.pool.query('update account set balance = balance + 1 where id = 1')
  await tx.query('update account set balance = balance - 10 where id = 1')
}

/** A pool whose clients fail in the second statement of BEGIN, as on a standby, where no transaction gets an id. */
function spoiltBegin(from: pg.Pool): PgPool {
  return {
    totalCount: 1,
    query: (text, values) => from.query(text, values),
    connect: (take) =>
      from.connect((failure, client) => {
        if (client === undefined) return take(failure, undefined)
        return take(undefined, {
          query: (text) => client.query(text.startsWith('begin') ? 'begin; select 1/0' : text),
          on: (event, listener) => client.on(event, listener),
          removeListener: (event, listener) => client.removeListener(event, listener),
          release: (error) => client.release(error),
        })
      }),
  }
}
