/** Statements and values pass every adapter unchanged, and so do the server's answers. */
import { expect, test } from 'vitest'

import { errorMessage } from '../../src/core/errors.ts'
import type { Queryable, Tx } from '../../src/postgres/query/database.ts'
import { constraintName, isUniqueViolation, sqlState } from '../../src/postgres/query/sql-state.ts'
import type { SqlValue } from '../../src/postgres/query/sql.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import type { AdapterContext } from './adapter-harness.ts'

export function statements<Native>({ use }: AdapterContext<Native>): void {
  test('every kind of value arrives as it was sent, inside a transaction and outside', async () => {
    const { db } = await use()
    const bytes = Uint8Array.from({ length: 256 }, (_, i) => i)
    const roundTrip = async (on: Queryable): Promise<void> => {
      const { rows, rowCount } = await on.query(
        `select $1::bytea as bytes, $2::text::bigint::text as big, $3::text as words, $4::text is null as is_null,
                $5::boolean::text as truth, $6::text::jsonb ->> 'k?' as json, ($7::text::bigint[])::text as many,
                $8::int::text as number, $9::text as plain, $10::boolean::text as lie`,
        [
          bytes.subarray(1, 255),
          '9223372036854775807',
          `ünï?? 𝕔𝕠𝕕𝕖 \\? ' " $1 \u2028 \t\r\n`,
          null,
          true,
          '{"k?":"v"}',
          '{1,NULL,3}',
          -5,
          '',
          false,
        ],
      )
      const { bytes: came, ...rest } = rows[0] as { bytes: Uint8Array } & Record<string, unknown>
      expect(Buffer.from(came).equals(Buffer.from(bytes.subarray(1, 255)))).toBe(true)
      expect(rest).toEqual({
        big: '9223372036854775807',
        words: `ünï?? 𝕔𝕠𝕕𝕖 \\? ' " $1 \u2028 \t\r\n`,
        is_null: true,
        truth: 'true',
        json: 'v',
        many: '{1,NULL,3}',
        number: '-5',
        plain: '',
        lie: 'false',
      })
      expect(rowCount).toBe(1)
    }
    await roundTrip(db)
    await transaction(db, roundTrip)
  })

  test('the text of a statement is not touched, whatever stands in its quotes', async () => {
    const { db } = await use()
    const text = String.raw`select $1::text as "a?_b", '$2 ? \? :x ??' as quoted, $tag$ '$1' ? \? $tag$ as dollars,
      '{"a":1}'::jsonb ? 'a' as has, $2::text as second, $1::text as again -- ? $3`
    for (const on of [db.query, (t: string, v: string[]) => transaction(db, (tx) => tx.query(t, v))]) {
      expect((await on(text, ['one', 'two'])).rows).toEqual([
        {
          'a?_b': 'one',
          quoted: String.raw`$2 ? \? :x ??`,
          dollars: String.raw` '$1' ? \? `,
          has: true,
          second: 'two',
          again: 'one',
        },
      ])
    }
  })

  test('rows come back as plain objects, and the count says how many were touched', async () => {
    const { db } = await use()
    const counts = async (on: Queryable): Promise<void> => {
      expect((await on.query(`insert into note values (1, 'returning'), (2, 'b')`)).rowCount).toBe(2)
      const updated = await on.query('update note set text = $1::text where id = 1 returning id, text', ['c'])
      expect([updated.rowCount, updated.rows]).toEqual([1, [{ id: 1, text: 'c' }]])
      expect((await on.query('update note set text = $1::text where id = $2::int', ['d', 99])).rowCount).toBe(0)
      const moved =
        'with old as (delete from note where id = 2 returning *) update note set text = old.text from old where note.id = 1'
      expect((await on.query(moved)).rowCount).toBe(1)
      expect((await on.query('select * from note')).rows).toEqual([{ id: 1, text: 'b' }])
      expect((await on.query('delete from note')).rowCount).toBe(1)
      expect((await on.query('select id from note')).rows).toEqual([])
    }
    await counts(db)
    await transaction(db, counts)
  })

  test('a script of several statements without parameters is run as a whole', async () => {
    const { db } = await use()
    const script = `-- Two rows.
      create temp table draft (id int) on commit drop; insert into draft values (1), (2);
      insert into note select id, $$it's; fine$$ from draft`
    await transaction(db, (tx) => tx.query(script))
    expect((await db.query('select text from note')).rows).toEqual([{ text: `it's; fine` }, { text: `it's; fine` }])
  })

  test('an error of our statements is told in the server’s words, without the parameters', async () => {
    const { db } = await use()
    const fails = `select case when $1::text = 'secret' then 1 / $2::int end`
    for (const on of [db.query, (text: string, values: SqlValue[]) => transaction(db, (tx) => tx.query(text, values))]) {
      const error = await on(fails, ['secret', 0]).then(() => undefined, errorMessage)
      expect(error).toBe('division by zero')
    }
    await db.query(`insert into note values (1, 'a')`)
    const twice = await db.query(`insert into note values (1, 'b')`).then(
      () => undefined,
      (error: unknown) => error,
    )
    expect([isUniqueViolation(twice), constraintName(twice)]).toEqual([true, 'note_pkey'])
  })

  test('the code of a server error is found through every wrapping', async () => {
    const { db, insertNote } = await use()
    const code = (work: (tx: Tx<Native>) => Promise<unknown>): Promise<string | undefined> =>
      transaction(db, work).then(() => 'none', sqlState)
    expect(await db.query('select 1/0').then(() => 'none', sqlState)).toBe('22012')
    expect(await code((tx) => tx.query('select 1/0'))).toBe('22012')
    expect(await code((tx) => tx.query(`do $$ begin raise exception 'mine' using errcode = 'P0001'; end $$`))).toBe('P0001')
    expect(await code(async (tx) => [await insertNote(tx.native, 1, 'a'), await insertNote(tx.native, 1, 'b')])).toBe('23505')
  })
}
