/** Time-outs and isolation hold for one transaction, exactly, and leave nothing behind. */
import { expect, test } from 'vitest'

import type { Database, Isolation, Queryable, QueryResult } from '../../src/postgres/query/database.ts'
import { sqlState } from '../../src/postgres/query/sql-state.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import type { AdapterContext } from './adapter-harness.ts'

export function settings<Native>({ database, use }: AdapterContext<Native>): void {
  const shown = `select current_setting('statement_timeout') as statement, current_setting('lock_timeout') as lock,
    current_setting('idle_in_transaction_session_timeout') as idle, current_setting('synchronous_commit') as sync`

  test('time-outs hold inside the transaction and are gone afterwards', async () => {
    const { db } = await use()
    const before = (await db.query(shown)).rows
    const options = {
      statementTimeoutMs: 1234,
      lockTimeoutMs: 567,
      idleInTransactionTimeoutMs: 8901,
      synchronousCommit: 'off',
    } as const
    const inside = await transaction(db, (tx) => tx.query(shown), options)
    expect(inside.rows).toEqual([{ statement: '1234ms', lock: '567ms', idle: '8901ms', sync: 'off' }])
    expect((await db.query(shown)).rows).toEqual(before)
    expect(await transaction(db, (tx) => tx.query('select 1/0'), options).catch(sqlState)).toBe('22012')
    expect((await db.query(shown)).rows).toEqual(before)
  })

  test('a session’s synchronous_commit stays as it is, but for off, which is raised unless it was asked for', async () => {
    const settingOf = async (db: Database<Native>, synchronousCommit: 'on' | 'off'): Promise<unknown> => {
      const read = (tx: Queryable): Promise<QueryResult> => tx.query(`select current_setting('synchronous_commit') as sync`)
      return ((await transaction(db, read, { synchronousCommit })).rows[0] as { sync: unknown }).sync
    }
    try {
      for (const own of ['off', 'local', 'remote_write', 'on', 'remote_apply']) {
        await database.pool.query(`alter database ${database.name} set synchronous_commit = ${own}`)
        const { db } = await use(database.directUrl)
        expect([own, await settingOf(db, 'on')]).toEqual([own, own === 'off' ? 'on' : own])
        expect(await settingOf(db, 'off')).toBe('off')
      }
    } finally {
      await database.pool.query(`alter database ${database.name} reset synchronous_commit`)
    }
  })

  test('a transaction that is read only takes no transaction id, and the server refuses its writes', async () => {
    const { db, insertNote } = await use()
    const readOnly = { readOnly: true } as const
    const asked = `select pg_current_xact_id_if_assigned()::text as xid, (select count(*)::int from note) as notes`
    expect((await transaction(db, (tx) => tx.query(asked), readOnly)).rows).toEqual([{ xid: null, notes: 0 }])
    expect(await transaction(db, (tx) => insertNote(tx.native, 1, 'never'), readOnly).catch(sqlState)).toBe('25006')
    const swallowed = transaction(db, (tx) => tx.query('select 1/0').catch(() => undefined), readOnly)
    await expect(swallowed).rejects.toMatchObject({ code: 'TRANSACTION_ABORTED' })
    await transaction(db, (tx) => insertNote(tx.native, 2, 'written'))
    expect((await transaction(db, (tx) => tx.query('select id from note'), readOnly)).rows).toEqual([{ id: 2 }])
  })

  test('a closure that joins a transaction cannot ask for a stronger isolation than that has, nor for what does not exist', async () => {
    const { db } = await use()
    const inside = (outer: Isolation, inner: object): Promise<unknown> =>
      transaction(db, (tx) => transaction(tx, async () => 'joined', inner), { isolation: outer })
    expect(await inside('serializable', { isolation: 'repeatable read' })).toBe('joined')
    expect(await inside('repeatable read', {})).toBe('joined')
    await expect(inside('repeatable read', { isolation: 'serializable' })).rejects.toThrow(
      /serializable was asked for, but the transaction that this one joins is repeatable read/,
    )
    await expect(inside('read committed', { isolationLevel: 'serializable' })).rejects.toThrow(/isolationLevel: unknown option/)
  })

  test('a statement that takes too long is stopped by the server and leaves a clean connection', async () => {
    const { db, insertNote } = await use()
    const slow = transaction(
      db,
      async (tx) => {
        await insertNote(tx.native, 1, 'gone')
        await tx.query('select pg_sleep(30)::text')
      },
      { statementTimeoutMs: 50 },
    )
    expect(await slow.catch(sqlState)).toBe('57014')
    const { rows } = await db.query(`select pg_current_xact_id_if_assigned()::text as xid, count(*)::int as notes from note`)
    expect(rows).toEqual([{ xid: null, notes: 0 }])
  })

  test('a wait for a lock ends in time', async () => {
    const { db } = await use()
    await database.pool.query(`insert into note values (1, 'a')`)
    const holder = await database.pool.connect()
    try {
      await holder.query('begin; select * from note for update')
      const waiting = transaction(db, (tx) => tx.query(`update note set text = 'b'`), { lockTimeoutMs: 50 })
      expect(await waiting.catch(sqlState)).toBe('55P03')
    } finally {
      await holder.query('rollback')
      holder.release()
    }
    await transaction(db, (tx) => tx.query(`update note set text = 'b'`))
  })

  test('the isolation level is the one that was asked for, whatever the server’s default is', async () => {
    await database.pool.query(`alter database ${database.name} set default_transaction_isolation = 'serializable'`)
    try {
      const { db } = await use(database.directUrl)
      for (const isolation of ['read committed', 'repeatable read', 'serializable'] as const) {
        const { rows } = await transaction(db, (tx) => tx.query(`select current_setting('transaction_isolation') as isolation`), {
          isolation,
        })
        expect(rows).toEqual([{ isolation }])
      }
      const byDefault = await transaction(db, (tx) => tx.query(`select current_setting('transaction_isolation') as isolation`))
      expect(byDefault.rows).toEqual([{ isolation: 'read committed' }])
    } finally {
      await database.pool.query(`alter database ${database.name} reset default_transaction_isolation`)
    }
  })
}
