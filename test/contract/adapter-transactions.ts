/** Ours and the native statements are one transaction, and its end is reported as it was. */
import { setImmediate as nextTurn } from 'node:timers/promises'

import { expect, test } from 'vitest'

import { seededRandom } from '../../src/core/service/random.ts'
import { assertTx, isTx, type Tx } from '../../src/postgres/query/database.ts'
import { isUniqueViolation, sqlState } from '../../src/postgres/query/sql-state.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { FileDatabase } from '../setup/test-database.ts'
import { lockWaits, notes, type AdapterContext, type AdapterHarness } from './adapter-harness.ts'

export function oneTransaction<Native>({ database, use }: AdapterContext<Native>): void {
  test('our statements and the native ones run in the same transaction', async () => {
    const { db, insertNote, nativeXid } = await use()
    await transaction(db, async (tx) => {
      await insertNote(tx.native, 1, 'native')
      const { rows } = await tx.query(`select pg_current_xact_id()::text as xid, (select text from note where id = 1) as text`)
      expect(rows).toEqual([{ xid: await nativeXid(tx.native), text: 'native' }])
      expect(await notes(database)).toEqual([])
    })
    expect(await notes(database)).toEqual([{ id: 1, text: 'native' }])
  })

  test('a transaction of the user’s own takes our statements with it, whether it commits or rolls back', async () => {
    const { ownTransaction, insertNote, nativeXid } = await use()
    const work = async (tx: Tx<Native>): Promise<void> => {
      assertTx(tx, 'test')
      await insertNote(tx.native, 1, 'native')
      await tx.query(`insert into note values (2, 'ours')`)
      const { rows } = await tx.query('select pg_current_xact_id()::text as xid')
      expect(rows).toEqual([{ xid: await nativeXid(tx.native) }])
    }
    const failing = ownTransaction(async (tx) => {
      await work(tx)
      throw new Error('card declined')
    })
    await expect(failing).rejects.toThrow('card declined')
    expect(await notes(database)).toEqual([])
    await ownTransaction(work)
    expect(await notes(database)).toHaveLength(2)
  })

  test('a closure that throws leaves nothing behind, and its own error is what is reported', async () => {
    const { db, insertNote } = await use()
    const declined = new Error('card declined')
    const checkout = transaction(db, async (tx) => {
      await insertNote(tx.native, 1, 'native')
      await tx.query(`insert into note values (2, 'ours')`)
      throw declined
    })
    await expect(checkout).rejects.toBe(declined)
    expect(await notes(database)).toEqual([])
  })

  test('what a closure that threw still has under way cannot write behind the rollback', async () => {
    const { db } = await use()
    let late: Promise<unknown> = Promise.resolve()
    const checkout = transaction(db, async (tx) => {
      late = tx.query('select 1').then(() => tx.query(`insert into note values (1, 'late')`))
      late.catch(() => undefined)
      throw new Error('card declined')
    })
    await expect(checkout).rejects.toThrow('card declined')
    await expect(late).rejects.toBeInstanceOf(Error)
    expect(await notes(database)).toEqual([])
  })

  test('nor can the native statements that it still has under way, and whoever has the connection next is undisturbed', async () => {
    const { db, insertNote } = await use()
    const { late, ended } = await endedWhileUnderWay(database, { db, insertNote }, 2, () => {
      throw new Error('card declined')
    })
    await expect(ended).rejects.toThrow('card declined')
    expect(await late).toBe('NOT_A_TRANSACTION')
    await transaction(db, (tx) => insertNote(tx.native, 3, 'the next one'))
    expect(await notes(database)).toEqual([{ id: 3, text: 'the next one' }])
  })

  test('what a closure that returned still has under way rolls everything back, and nothing of it runs behind that', async () => {
    const { db, insertNote } = await use()
    const { late, ended } = await endedWhileUnderWay(database, { db, insertNote }, 2, () => undefined)
    await expect(ended).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION', message: expect.stringMatching(/note/i) })
    expect(await late).toBe('NOT_A_TRANSACTION')
    await transaction(db, (tx) => insertNote(tx.native, 3, 'the next one'))
    expect(await notes(database)).toEqual([{ id: 3, text: 'the next one' }])
  })

  test('given a transaction, the runner joins it', async () => {
    const { db, nativeXid } = await use()
    await transaction(db, (outer) =>
      transaction(outer, async (inner) => {
        expect(inner).toBe(outer)
        expect(await nativeXid(inner.native)).toBe(await nativeXid(outer.native))
      }),
    )
  })

  test('what the closure returned is returned, an array or undefined too', async () => {
    const { db } = await use()
    expect(await transaction(db, async () => [1, Promise.resolve(2)].slice(0, 1))).toEqual([1])
    expect(await transaction(db, async () => undefined)).toBeUndefined()
  })

  test('a database is refused where a transaction is needed, and so is a transaction that ended', async () => {
    const { db } = await use()
    expect(isTx(db)).toBe(false)
    expect(() => assertTx(db, 'outbox.add')).toThrow(/outbox\.add needs a transaction, not a pool/)
    const late = await transaction(db, async (tx) => tx)
    await expect(late.query(`insert into note values (1, 'late')`)).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
    const failed: Tx[] = []
    await expect(transaction(db, async (tx) => Promise.reject(new Error(`no ${failed.push(tx)}`)))).rejects.toThrow('no 1')
    await expect(failed[0]!.query('select 1')).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
    expect(await notes(database)).toEqual([])
  })
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | undefined)?.code
}

/**
 * Ends a closure in the middle of two native statements that it does not await: the first waits for a lock until it has ended.
 * `late` is what became of the second one.
 */
async function endedWhileUnderWay<Native>(
  { pool }: FileDatabase,
  { db, insertNote }: Pick<AdapterHarness<Native>, 'db' | 'insertNote'>,
  secondId: number,
  end: () => void,
): Promise<{ readonly late: Promise<unknown>; readonly ended: Promise<void> }> {
  const other = await pool.connect()
  await other.query(`begin; insert into note values (1, 'in the way')`)
  let late: Promise<unknown> = Promise.resolve()
  const closed = Promise.withResolvers<void>()
  const ended = transaction(db, async (tx) => {
    const both = async (): Promise<unknown> => {
      await insertNote(tx.native, 1, 'under way')
      return await insertNote(tx.native, secondId, 'late')
    }
    // Some libraries put an error of their own around it.
    late = both().catch((error: unknown) => codeOf((error as Error).cause) ?? codeOf(error))
    await eventually(async () => (await pool.query(lockWaits)).rowCount === 1, { intervalMs: 1 })
    closed.resolve()
    end()
  })
  ended.catch(() => undefined)
  await closed.promise
  // Held until the end of the closure has been judged: a statement that comes before that is under way like the first.
  for (let turns = 0; turns < 3; turns += 1) await nextTurn()
  await other.query('rollback')
  other.release()
  return { late, ended }
}

export function theTruth<Native>({ database, use }: AdapterContext<Native>): void {
  test('an error that the closure swallowed makes the transaction fail, whoever sent the statement', async () => {
    const { db, insertNote } = await use()
    const ours = transaction(db, async (tx) => {
      await insertNote(tx.native, 1, 'kept?')
      await tx.query('select 1/0').catch(() => undefined)
    })
    await expect(ours).rejects.toMatchObject({ code: 'TRANSACTION_ABORTED' })
    const native = transaction(db, async (tx) => {
      await insertNote(tx.native, 2, 'kept?')
      await insertNote(tx.native, 2, 'twice').catch(() => undefined)
    })
    await expect(native).rejects.toMatchObject({ code: 'TRANSACTION_ABORTED' })
    expect(await notes(database)).toEqual([])
    await transaction(db, (tx) => insertNote(tx.native, 3, 'the connection is fine'))
    expect(await notes(database)).toHaveLength(1)
  })

  test('a statement of ours that failed after a savepoint is undone with it, and the rest commits', async () => {
    const { db, insertNote } = await use()
    await transaction(db, async (tx) => {
      await insertNote(tx.native, 1, 'before')
      await tx.query('savepoint here')
      await expect(tx.query('insert into note values (1, null)')).rejects.toSatisfy(isUniqueViolation)
      await tx.query('rollback to savepoint here')
      await insertNote(tx.native, 2, 'after')
    })
    expect(await notes(database)).toHaveLength(2)
  })

  test('a closure that commits or rolls back by itself is not reported as committed', async () => {
    const { db } = await use()
    for (const end of ['commit', 'rollback']) {
      const work = transaction(db, (tx) => tx.query(end))
      await expect(work).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
    }
    await transaction(db, (tx) => tx.query('select 1'))
  })

  test('a constraint that fails at COMMIT is that failure, not an unknown outcome', async () => {
    const { db } = await use()
    const outcome = transaction(db, (tx) => tx.query('insert into slot values (1), (1)'))
    expect(await outcome.then(() => 'committed', sqlState)).toBe('23505')
    await transaction(db, (tx) => tx.query('insert into slot values (1)'))
  })

  test('a serialisation failure of a native statement runs the whole closure again', async () => {
    const { db, updateNote } = await use()
    await database.pool.query(`insert into note values (1, 'start')`)
    let runs = 0
    await transaction(
      db,
      async (tx) => {
        runs += 1
        const { rows } = await tx.query('select text from note where id = 1')
        if (runs === 1) await database.pool.query(`update note set text = 'other' where id = 1`)
        await updateNote(tx.native, 1, `${(rows[0] as { text: string }).text} + mine`)
      },
      { isolation: 'repeatable read', random: seededRandom(1) },
    )
    expect([runs, await notes(database)]).toEqual([2, [{ id: 1, text: 'other + mine' }]])
  })
}
