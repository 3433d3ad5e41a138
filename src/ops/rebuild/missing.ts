/**
 * What a swap would lose: rows of the live tables that the new ones lack, or have in an older version.
 *
 * The new generation is as far as the live one with every aggregate that has a position, but not every event becomes a row: the
 * marker of a skipped event does not, nor does an event of a type that the code knows no more. If nothing else of an aggregate is
 * retained, its row would be gone. And a row may be an aggregate's that has no position: it was there before the consumer was, or
 * was written while positions were kept only where needed. So nothing goes unless the operator says so, and what a known
 * aggregate has stays even then.
 */
import { WaybillError } from '../../core/errors.ts'
import { execute, one, rows, type Tx } from '../../postgres/query/database.ts'
import { limitStatements } from '../../postgres/transaction/tx-scope.ts'
import { isRefusedValue, isStatementTimeout } from '../../postgres/query/sql-state.ts'
import type { Projection } from '../../projection/projection.ts'
import type { StartedRebuild } from './run.ts'
import type { Shadow } from './shadow.ts'
import { readAggregates, type AggregateRow, type RebuildScope } from './rebuild.sql.ts'
import { countUncovered, findUncovered, type UncoveredRow } from './tables.sql.ts'

const pageSize = 10_000
/** Rows are counted up to here in each table; writers wait meanwhile. */
export const mostCounted = 10_000

export interface LossOptions {
  /** Rows that belong to no aggregate with a position may go. */
  readonly dropUnknown: boolean
  /** How long writers may still wait. */
  readonly leftMs: () => number
}

/**
 * REFUSED if something would be lost that may not go, TIMEOUT if that cannot be told while writers may wait. Returns how many
 * rows go, counted up to `mostCounted` in each table.
 */
export async function refuseLost(
  tx: Tx,
  { scope, shadows }: StartedRebuild,
  { dropUnknown, leftMs }: LossOptions,
): Promise<number> {
  let dropped = 0
  for (const shadow of shadows) {
    const { live } = shadow
    const uncovered = await inTime(tx, { leftMs, tooLate: tooLong(scope.consumer) }, () =>
      one(tx, findUncovered(live, shadow.shadow.tableText, mostCounted)),
    )
    if (uncovered.count === 0) continue
    if (!dropUnknown) throw wouldLose(scope.consumer, live.tableText, uncovered)
    await refuseKnown(tx, scope, { ...shadow, leftMs })
    dropped += uncovered.count
  }
  return dropped
}

/** Rows are looked up by their aggregates, for only `keyOf` knows whose a row is. */
async function refuseKnown(
  tx: Tx,
  scope: RebuildScope,
  { live, shadow, leftMs }: Shadow & { readonly leftMs: () => number },
): Promise<void> {
  const type = live.stream.aggregateType
  const tooLate = tooManyStray(scope.consumer)
  let after: string | undefined = ''
  while (after !== undefined) {
    const from: string = after
    after = await inTime(tx, { leftMs, tooLate }, async () => {
      const page: readonly AggregateRow[] = await rows(tx, readAggregates(scope, type, { after: from, limit: pageSize }))
      const keys = page.flatMap(({ aggregate_id: id }) => keyOf(live, id))
      const lost = await one(tx, countUncovered(live, shadow.tableText, JSON.stringify(keys))).catch(unfit(live.tableText))
      if (lost.count > 0) throw wouldLoseKnown(scope.consumer, live.tableText, lost)
      return page.length < pageSize ? undefined : page.at(-1)?.aggregate_id
    })
  }
}

interface Wait {
  readonly leftMs: () => number
  readonly tooLate: (cause?: unknown) => WaybillError
}

/** No statement of `look` takes longer than writers may still wait. */
async function inTime<Result>(tx: Tx, { leftMs, tooLate }: Wait, look: () => Promise<Result>): Promise<Result> {
  const mostMs = Math.floor(leftMs())
  if (mostMs <= 0) throw tooLate()
  await execute(tx, limitStatements(mostMs))
  try {
    return await look()
  } catch (error) {
    throw isStatementTimeout(error) ? tooLate(error) : error
  }
}

/** The key as an object by column; none for an aggregate that cannot have a row. */
function keyOf({ keyColumns, keyOf: take }: Projection, aggregateId: string): readonly Readonly<Record<string, string>>[] {
  try {
    const values = take(aggregateId)
    return values.length === keyColumns.length
      ? [Object.fromEntries(keyColumns.map((column, i) => [column, values[i] ?? '']))]
      : []
  } catch {
    return []
  }
}

/** Whether a row belongs to nobody cannot be told where an id is no value of the key. */
function unfit(table: string): (error: unknown) => never {
  return (cause) => {
    if (!isRefusedValue(cause)) throw cause
    throw new WaybillError(
      'REFUSED',
      `The rebuild lacks rows of ${table}, and whether they belong to an aggregate cannot be told, because the id of one does not fit the key of the table. Nothing was swapped. Look at them with a comparison, and delete from ${table} what should go.`,
      { cause, details: { table } },
    )
  }
}

function tooLong(consumer: string): Wait['tooLate'] {
  return (cause) =>
    new WaybillError(
      'TIMEOUT',
      `The tables of ${consumer} could not be compared while writers waited. Nothing was swapped; try again at a quieter time, or with a longer swapWaitMs (--swap-wait).`,
      { cause },
    )
}

function tooManyStray(consumer: string): Wait['tooLate'] {
  return (cause) =>
    new WaybillError(
      'TIMEOUT',
      `The rebuild of ${consumer} lacks rows of the live tables, and writers cannot be kept waiting until each of them is known to belong to no aggregate. Nothing was swapped; look at them with a comparison, delete what should go from the live table, or try again with a longer swapWaitMs (--swap-wait).`,
      { cause },
    )
}

function wouldLose(consumer: string, table: string, { count, example }: UncoveredRow): WaybillError {
  const counted = count === mostCounted ? `at least ${count}` : count
  return new WaybillError(
    'REFUSED',
    `The rebuild of ${consumer} lacks ${counted} rows of ${table}, or has them older, such as ${example}: nothing that it has read writes them. Nothing was swapped. Let the owner write them again (waybill backfill) and go on, or delete from ${table} what should go. With dropUnknown (--drop-unknown) those go with the old table whose aggregates ${consumer} has no position of.`,
    { details: { table, rows: count } },
  )
}

function wouldLoseKnown(consumer: string, table: string, { count, example }: UncoveredRow): WaybillError {
  return new WaybillError(
    'REFUSED',
    `The rebuild of ${consumer} lacks at least ${count} rows of ${table}, or has them older, such as ${example}: of their aggregates only events are left that write no row. Nothing was swapped. Let the owner write them again (waybill backfill) and go on; delete them from ${table} if they should go.`,
    { details: { table, rows: count } },
  )
}
