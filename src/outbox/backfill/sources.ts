/**
 * Where a backfill gets its rows from: the port that a table and an export file share.
 *
 * A source keeps nothing between two pages: the cursor says all, so that a backfill goes on in another process from what was
 * committed last.
 */
import type { Queryable, Tx } from '../../postgres/query/database.ts'

export interface BackfillSource<Row> {
  /** Names the source. A backfill is resumed only with the source that it began with. */
  readonly description: string
  readonly unit: 'rows' | 'bytes'
  /** How much there is, about; `undefined` if nobody knows. */
  measure(db: Queryable): Promise<number | undefined>
  /** The rows behind the cursor, at most `limit`; `undefined` at the end. */
  page(
    db: Queryable,
    options: { readonly cursor: string | undefined; readonly limit: number },
  ): Promise<BackfillPage<Row> | undefined>
}

export interface BackfillPage<Row> {
  readonly rows: readonly Row[]
  /** Where the next page begins. */
  readonly cursor: string
  /** How far this page goes, in the source's unit. */
  readonly advanced: number
  /**
   * What is to be emitted for each row, now that the locks of their aggregates are held; `undefined` for nothing. `isNew` says
   * of each row whether its aggregate had no event before.
   */
  current(tx: Tx, isNew: readonly boolean[]): Promise<readonly (Row | undefined)[]>
}
