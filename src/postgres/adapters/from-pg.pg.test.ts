import { once } from 'node:events'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'

import { adapterContract } from '../../../test/contract/adapter-contract.ts'
import { refusesBehindCommit } from '../../../test/contract/adapter-under-way.ts'
import { notes, type AdapterHarness } from '../../../test/contract/adapter-harness.ts'
import { outboxFixture, videos } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { PgPool } from './borrow-client.ts'
import type { Tx } from '../query/database.ts'
import { fromPg } from './from-pg.ts'
import { transaction } from '../transaction/transaction.ts'

const database = await testDatabase()

/** That of a `pg` before 8.21, which does not follow the state of its transaction. */
class OlderClient extends pg.Client {}
Object.defineProperty(OlderClient.prototype, 'getTransactionStatus', { value: undefined })

for (const [name, Client] of [
  ['fromPg', pg.Client],
  ['fromPg of an older pg', OlderClient],
] as const) {
  const open = (url: string): AdapterHarness<pg.PoolClient> => {
    const pool = new pg.Pool({ connectionString: url, max: 1, Client })
    pool.on('error', () => undefined)
    return {
      db: fromPg(pool),
      insertNote: (client, id, text) => client.query('insert into note values ($1, $2)', [id, text]),
      updateNote: (client, id, text) => client.query('update note set text = $2 where id = $1', [id, text]),
      nativeXid: async (client) => (await client.query<{ xid: string }>('select pg_current_xact_id()::text as xid')).rows[0]!.xid,
      ownTransaction: async (work) => {
        const client = await pool.connect()
        try {
          await client.query('begin')
          await work(fromPg(client))
          await client.query('commit')
        } catch (error) {
          await client.query('rollback')
          throw error
        } finally {
          client.release()
        }
      },
      close: () => pool.end(),
    }
  }
  adapterContract(name, database, open)
  refusesBehindCommit(name, database, open)
}

test('a client outside a transaction is refused, before it is used and after its transaction ended', async () => {
  const client = await database.pool.connect()
  try {
    expect(() => fromPg(client)).toThrow(/not inside a transaction, or its COMMIT was sent. Send BEGIN first/)
    await client.query('begin')
    const tx = fromPg(client)
    await client.query('commit')
    await expect(tx.query('select 1')).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
  } finally {
    client.release()
  }
})

describe('a client of an older pg', () => {
  const client = new OlderClient({ connectionString: database.url })
  beforeAll(() => client.connect())
  afterEach(() => client.query('rollback'))
  afterAll(() => client.end())

  test('adds events inside a transaction and none outside, neither before it began nor after it ended', async () => {
    const { outbox, states } = await outboxFixture(fromPg(database.pool))
    const tx = fromPg(client)
    const add = (): Promise<unknown> => outbox.add(tx, videos.VideoPublished, 'v1', { title: 'first' })
    const refused = { code: 'NOT_A_TRANSACTION', message: expect.stringMatching(/Send BEGIN first/) }
    await expect(add()).rejects.toMatchObject(refused)
    expect(await states()).toEqual({})
    await client.query('begin')
    await add()
    expect(await states()).toEqual({})
    await client.query('commit')
    await expect(add()).rejects.toMatchObject(refused)
    expect(await states()).toEqual({ 'v1 1': 'PENDING' })
  })

  test('keeps its transaction as it was: its savepoints, what it may do, and that it failed', async () => {
    const tx = fromPg(client)
    await client.query('begin read only; savepoint waybill; savepoint later')
    expect((await tx.query('select pg_current_xact_id_if_assigned() as xid')).rows).toEqual([{ xid: null }])
    await client.query('rollback to savepoint later; rollback to savepoint waybill; release savepoint waybill')
    await expect(client.query('release savepoint waybill')).rejects.toMatchObject({ code: '3B001' })
    await expect(tx.query('select 1')).rejects.toMatchObject({ code: '25P02' })
    await tx.query('rollback')
    await expect(tx.query('select 1')).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
  })

  test('is found out by its server if the closure began another transaction', async () => {
    const pool = new pg.Pool({ connectionString: database.url, max: 1, Client: OlderClient })
    const work = transaction(fromPg(pool), async (tx) => {
      await tx.query('commit')
      await tx.query('begin')
      await tx.query(`insert into note values (1, 'undone')`)
    })
    await expect(work).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
    expect(await notes(database)).toEqual([])
    await pool.end()
  })
})

test('a client that follows its transaction by itself costs no question', async () => {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  const query = vi.spyOn(client, 'query')
  await client.query('begin')
  await fromPg(client).query('select 1')
  await client.end()
  expect(query.mock.calls.map(([text]) => text)).toEqual(['begin', 'select 1'])
})

test('a client that outlives its transaction refuses statements in the way that they are sent', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  const late = await transaction(fromPg(pool), async ({ native }) => {
    expect(native).toBeInstanceOf(pg.Client)
    expect((await native.query({ text: 'select $1::int as id', values: [1], rowMode: 'array' })).rows).toEqual([[1]])
    return native
  })
  const refused = { code: 'NOT_A_TRANSACTION' }
  await expect(late.query('rollback')).rejects.toMatchObject(refused)
  const { promise, reject } = Promise.withResolvers()
  late.query('select 1', reject)
  await expect(promise).rejects.toMatchObject(refused)
  const [error] = (await once(late.query(new pg.Query('select 1')), 'error').catch((raised: unknown) => [raised])) as [unknown]
  expect(error).toMatchObject(refused)
  await pool.end()
})

test.each([
  ['a callback', (client: pg.ClientBase) => client.query('insert into note values (1, $1)', ['left'], () => undefined)],
  ['a query object', (client: pg.ClientBase) => client.query(new pg.Query('insert into note values (1, $1)', ['left']))],
] as const)('what was sent by %s and not answered when the closure returned is rolled back, and named', async (_way, send) => {
  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  const work = transaction(fromPg(pool), async ({ native }) => {
    await native.query(`insert into note values (2, 'before')`)
    void send(native)
  })
  await expect(work).rejects.toThrow(/while insert into note values \(1, \$1\) was still under way/)
  expect((await pool.query('select id from note')).rows).toEqual([])
  await pool.end()
})

test('a closure that sends many statements at once has one under way, in whichever way it sends them', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  let most = 0
  pool.on('connect', (client: pg.Client & { _queryQueue?: readonly unknown[] }) => {
    const query = client.query.bind(client) as (...asked: unknown[]) => unknown
    client.query = ((...asked: unknown[]) => {
      const answer = query(...asked)
      most = Math.max(most, client._queryQueue?.length ?? 0)
      return answer
    }) as typeof client.query
  })
  const heard = Promise.withResolvers<unknown>()
  const answers = await transaction(fromPg(pool), (tx) => {
    tx.native.query('select 3 as n', (_error: unknown, { rows }: pg.QueryResult) => heard.resolve(rows))
    return Promise.all([tx.query('select 1 as n'), tx.native.query('select 2 as n'), tx.query('select 4 as n'), heard.promise])
  })
  expect(answers.map((answer) => (Array.isArray(answer) ? answer : (answer as pg.QueryResult).rows))).toEqual(
    [1, 2, 4, 3].map((n) => [{ n }]),
  )
  expect(most).toBe(0)
  await pool.end()
})

test('a closure cannot give its client back to the pool, neither inside of the transaction nor after it', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  let late: pg.PoolClient | undefined
  const work = transaction(fromPg(pool), async ({ native }) => {
    late = native
    await native.query(`insert into note values (1, 'undone')`)
    native.release()
  })
  await expect(work).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
  await transaction(fromPg(pool), async ({ native }) => {
    await native.query(`insert into note values (2, 'the next one')`)
    expect(() => late?.release()).toThrow(/gives its connection back by itself/)
    expect(pool.idleCount).toBe(0)
  })
  expect(await notes(database)).toEqual([{ id: 2, text: 'the next one' }])
  await database.pool.query('truncate note')
  await pool.end()
})

test('a client that leads to a server without writes does not go back to the pool', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  const work = async (tx: Tx): Promise<void> => {
    await tx.query('set transaction read only')
    await tx.query('create table never ()')
  }
  await expect(transaction(fromPg(pool), work)).rejects.toMatchObject({ code: '25006' })
  expect(pool.totalCount).toBe(0)
  await pool.end()
})

test('a replica is an outage, and its client does not go back to the pool', async () => {
  const refusal = Object.assign(new Error('cannot execute pg_current_xact_id() during recovery'), { code: '25006' })
  const released: unknown[] = []
  const client = {
    query: () => Promise.reject(refusal),
    on: () => undefined,
    removeListener: () => undefined,
    release: (broken: unknown) => void released.push(broken),
  }
  const pool: PgPool = { connect: (take) => take(undefined, client), query: client.query, totalCount: 1 }
  await expect(transaction(fromPg(pool), () => Promise.resolve())).rejects.toMatchObject({ code: 'UNAVAILABLE', cause: refusal })
  expect(released).toEqual([true])
})

test('a transaction that was given up before it had a connection is not begun, and leaves the connection to others', async () => {
  const [sent, released]: [string[], unknown[]] = [[], []]
  const client = {
    query: (text: string) => Promise.resolve(void sent.push(text)),
    on: () => undefined,
    removeListener: () => undefined,
    release: (broken: unknown) => void released.push(broken),
  }
  const pool: PgPool = { connect: (take) => take(undefined, client), query: client.query, totalCount: 1 }
  const options = { isolation: 'read committed', statementTimeoutMs: 1, lockTimeoutMs: 1, idleInTransactionTimeoutMs: 1 } as const
  const attempt = fromPg(pool).attempt({ ...options, synchronousCommit: 'on', givenUp: AbortSignal.abort() }, () =>
    Promise.resolve(),
  )
  await expect(attempt).rejects.toMatchObject({ code: 'ABORTED' })
  expect([sent, released]).toEqual([[], [false]])
})

test('something else is refused with a sentence that says what is expected', () => {
  expect(() => fromPg({} as pg.Pool)).toThrow(/expected a Pool of node-postgres/)
})
