/**
 * The owner's own table or view as the source of a backfill: walked by a unique key, a page at a time.
 *
 * A page says only which rows to look at. What is emitted is read again under the aggregates' locks, so a write that came in
 * between is never overwritten by an older state, and a row that was deleted is not emitted. Rows that are added behind the
 * walk are not met: whoever adds them adds their event as well.
 */
import { WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import { one, rows } from '../../postgres/query/database.ts'
import { name, qualifiedName } from '../../postgres/query/sql.ts'
import { countRows, selectKeyed, selectPage, type KeyedRow, type KeyedTable } from '../tables/backfill.sql.ts'
import type { BackfillSource } from './sources.ts'

export interface BackfillTableOptions {
  /** A table or view: `'shop.video'`. Rows come as the driver gives them. */
  readonly table: string
  /** The columns of a unique key without nulls, in the order of an index. */
  readonly key: string | readonly string[]
}

/** Walks a table or view of this database by a unique key. */
export function backfillTable<Row extends object>(options: BackfillTableOptions): BackfillSource<Row> {
  refuseUnknown('backfillTable', options, ['table', 'key'])
  const columns = [options.key].flat()
  if (columns.length === 0) throw new WaybillError('INVALID_OPTION', 'backfillTable.key: name at least one column.')
  const table: KeyedTable = { table: qualifiedName(options.table), key: columns.map((column) => name(column)) }
  return {
    description: `table ${options.table} by ${columns.join(', ')}`,
    unit: 'rows',
    measure: async (db) => (await one(db, countRows(table))).count,
    page: async (db, { cursor, limit }) => {
      const found = await rows(db, selectPage(table, cursor, limit))
      const last = found.at(-1)
      if (last === undefined) return undefined
      return {
        rows: found.map((row) => withoutKey<Row>(row)),
        cursor: last.waybill_key,
        advanced: found.length,
        current: async (tx) => {
          const now = await rows(
            tx,
            selectKeyed(
              table,
              found.map((row) => row.waybill_key),
            ),
          )
          const byKey = new Map(now.map((row) => [row.waybill_key, withoutKey<Row>(row)]))
          return found.map((row) => byKey.get(row.waybill_key))
        },
      }
    },
  }
}

function withoutKey<Row>({ waybill_key: _key, ...row }: KeyedRow): Row {
  return row as Row
}
