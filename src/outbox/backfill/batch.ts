/**
 * One batch of a backfill, in one transaction: the locks, the rows as they are now, their events, and the progress.
 *
 * Lock, then look: the rows are read by a statement that begins after the aggregates' locks are held. A writer adds its event
 * in the transaction of its change, so whatever it wrote is either seen here or gets a later version than the snapshot.
 *
 * It never waits long for a lock, and less than the database waits before it looks for deadlocks: when a writer and a backfill
 * meet in opposite orders, it is the backfill that gives way and comes back.
 */
import { WaybillError } from '../../core/errors.ts'
import { oncePer } from '../../core/options.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import { execute, first, rows, type Database, type Tx } from '../../postgres/query/database.ts'
import { lockOperation, saveOperation, type OperationRow } from '../../postgres/operation.sql.ts'
import { limitStatements } from '../../postgres/transaction/tx-scope.ts'
import { isLockTimeout, sqlState } from '../../postgres/query/sql-state.ts'
import { transaction, transactionOptions } from '../../postgres/transaction/transaction.ts'
import type { BackfillCounts, BackfillOperation } from './operation.ts'
import type { BackfillPage } from './sources.ts'
import { lockAggregates, snapshotHeader } from '../tables/backfill.sql.ts'
import { assertAggregateId } from '../event-limits.ts'
import type { NewEvent, Outbox } from '../outbox.ts'

/** `deadlock_timeout` is a second: by then the locks are held, or given up. */
const lockBudgetMs = 500
const statementTimeoutMs = 30_000
const statementTimedOut = '57014'

export interface BackfillBatchDeps<Row> {
  readonly db: Database
  readonly outbox: Outbox
  readonly name: string
  readonly stream: AnyStream
  readonly aggregateId: (row: Row) => string
  readonly toEvent: (row: Row, tx: Tx) => NewEvent | undefined | Promise<NewEvent | undefined>
  readonly lockTimeoutMs: number
}

/** Emits a page and commits how far that goes; TIMEOUT, with nothing done, if somebody holds one of its aggregates. */
export async function runBatch<Row>(
  deps: BackfillBatchDeps<Row>,
  operation: BackfillOperation,
  page: BackfillPage<Row>,
): Promise<BackfillCounts> {
  const { db, outbox } = deps
  const { schema } = outbox.tables
  const { id, runner } = operation
  const ids = page.rows.map((row) => idOf(deps, row))
  return await transaction(
    db,
    async (tx) => {
      const found = await first(tx, lockOperation(schema, 'backfill', id))
      if (found === undefined || !isOurs(found, runner)) throw takenOver(deps.name, id)
      await execute(tx, limitStatements(lockBudgetMs))
      const isNew = await lockPage(tx, deps, ids)
      await execute(tx, limitStatements(statementTimeoutMs))
      const current = await page.current(tx, isNew)
      const events: NewEvent[] = []
      for (const [index, row] of current.entries()) {
        const event = row === undefined ? undefined : await deps.toEvent(row, tx)
        if (event !== undefined) events.push(asSnapshot(event, { deps, id, locked: ids[index] }))
      }
      await outbox.addMany(tx, events)
      const counts = {
        rows: operation.rows + page.rows.length,
        emitted: operation.emitted + events.length,
        skipped: operation.skipped + page.rows.length - events.length,
        done: operation.done + page.advanced,
        total: operation.total,
      }
      await execute(tx, saveOperation(schema, { id }, { cursor: { at: page.cursor }, progress: { runner, ...counts } }))
      return counts
    },
    optionsOf(deps),
  )
}

const optionsOf = oncePer(({ lockTimeoutMs }: Pick<BackfillBatchDeps<never>, 'lockTimeoutMs'>) =>
  transactionOptions({ lockTimeoutMs, statementTimeoutMs }),
)

/** Another process may have taken it over, or given it up. */
function isOurs({ state, progress }: OperationRow, runner: string): boolean {
  return state === 'running' && (JSON.parse(progress) as { readonly runner: string }).runner === runner
}

/** An id that is no text, or none that Postgres takes as it is, would not be found among those that are locked. */
function idOf<Row>({ aggregateId, stream }: BackfillBatchDeps<Row>, row: Row): string {
  const id: unknown = aggregateId(row)
  assertAggregateId(id, `of stream ${stream.aggregateType}`)
  return id
}

/** Locks the aggregates of the page; says of each row whether it is the first of an aggregate without events. */
async function lockPage<Row>(
  tx: Tx,
  { outbox, stream }: BackfillBatchDeps<Row>,
  ids: readonly string[],
): Promise<readonly boolean[]> {
  try {
    const locked = ids.length === 0 ? [] : await rows(tx, lockAggregates(outbox.tables.schema, stream.aggregateType, ids))
    const fresh = new Set(locked.filter(({ version }) => version === '0').map((row) => row.id))
    return ids.map((id) => fresh.delete(id))
  } catch (cause) {
    if (!isLockTimeout(cause) && sqlState(cause) !== statementTimedOut) throw cause
    throw new WaybillError('TIMEOUT', 'A writer holds an aggregate of this batch; it is tried again.', { cause })
  }
}

function asSnapshot<Row>(
  event: NewEvent,
  { deps, id, locked }: { readonly deps: BackfillBatchDeps<Row>; readonly id: string; readonly locked: string | undefined },
): NewEvent {
  const { type, aggregateId, options } = event
  if (type.kind === 'delta' || type.stream.aggregateType !== deps.stream.aggregateType) {
    throw new WaybillError(
      'INVALID_OPTION',
      `backfill ${deps.name}: toEvent returned ${type.name}; it needs an event of stream ${deps.stream.aggregateType} that carries the whole state, or a tombstone.`,
    )
  }
  if (aggregateId !== locked) {
    throw new WaybillError(
      'INVALID_OPTION',
      `backfill ${deps.name}: toEvent returned an event of another aggregate than aggregateId says. Both must name the same.`,
    )
  }
  return { ...event, options: { ...options, headers: { ...options?.headers, [snapshotHeader]: id } } }
}

function takenOver(name: string, id: string): WaybillError {
  return new WaybillError(
    'REFUSED',
    `The backfill "${name}" was taken over by another process, or ended; this one stops. Nothing was emitted twice.`,
    { details: { operation: id } },
  )
}
