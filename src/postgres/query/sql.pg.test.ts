import fc from 'fast-check'
import { expect, test } from 'vitest'

import { testDatabase } from '../../../test/setup/test-database.ts'
import { one } from './database.ts'
import { fromPg } from '../adapters/from-pg.ts'
import { sql, sqlArray, sqlBytesArray } from './sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Postgres stores no NUL, and UTF-8 has no lone surrogates. */
const text = fc.oneof(
  fc.string({ unit: 'grapheme' }),
  fc.string({ unit: 'binary' }).map((any) => any.replaceAll('\0', '').toWellFormed()),
  fc.constantFrom('NULL', 'null', '', ' ', '{', '}', ',', '"', '\\', '\\\\"', '{"a"}', '\n\t', "'"),
)

test('any texts come back from an array as they went in', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.option(text), { maxLength: 20 }), async (items) => {
      const row = await one(
        db,
        sql<{ json: string; size: number }>`
        select to_json(t)::text as json, coalesce(array_length(t, 1), 0) as size from (select ${sqlArray(items)}::text::text[]) as _ (t)`,
      )
      expect([JSON.parse(row.json), row.size]).toEqual([items, items.length])
    }),
    { numRuns: 200 },
  )
})

test('any big numbers and booleans come back from an array as they went in', async () => {
  const bigint = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })
  await fc.assert(
    fc.asyncProperty(fc.array(fc.option(bigint)), fc.array(fc.boolean()), async (numbers, truths) => {
      const row = await one(
        db,
        sql<{ numbers: (string | null)[]; truths: boolean[] }>`
        select array_to_json(${sqlArray(numbers)}::text::bigint[]::text[]) as numbers, to_json(${sqlArray(truths)}::text::boolean[]) as truths`,
      )
      expect(row).toEqual({ numbers: numbers.map((each) => each?.toString() ?? null), truths })
    }),
    { numRuns: 50 },
  )
})

test('any bytes come back from an array as they went in', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array()), async (items) => {
      const row = await one(
        db,
        sql<{ hex: string[] }>`
        select coalesce(array_to_json(array(select encode(b, 'hex') from unnest(${sqlBytesArray(items)}::text::bytea[]) with ordinality as _ (b, n) order by n)), '[]') as hex`,
      )
      expect(row.hex).toEqual(items.map((bytes) => Buffer.from(bytes).toString('hex')))
    }),
    { numRuns: 50 },
  )
})

test('a value is data, whatever it looks like', async () => {
  await fc.assert(
    fc.asyncProperty(text, async (value) => {
      expect(await one(db, sql<{ value: string }>`select ${value}::text as value`)).toEqual({ value })
    }),
    { numRuns: 100 },
  )
})
