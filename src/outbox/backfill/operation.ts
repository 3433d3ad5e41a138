/**
 * The life of a backfill in the database: begun, taken over, finished. One process at a time works on it.
 *
 *   (none) ──begin──▶ running ──▶ finished
 *                      │   ▲
 *               error  ▼   │ resume      cancelled: given up for a new beginning
 *                     failed
 *
 * Nobody waits for a lease: whoever resumes takes the operation over, and the process that had it before is stopped by its
 * next batch, which commits only while the operation is its own. So a killed one can be resumed at once, and two that run by
 * mistake emit nothing twice.
 */
import { randomUUID } from 'node:crypto'
import { WaybillError } from '../../core/errors.ts'
import { newId } from '../../core/event/id.ts'
import { execute, first, type Database } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import {
  findOperations,
  lockOperations,
  saveOperation,
  startOperation,
  takeOperation,
  type OperationRow,
} from '../../postgres/operation.sql.ts'

/** What was done, over all runs of the operation. */
export interface BackfillCounts {
  readonly rows: number
  readonly emitted: number
  readonly skipped: number
  /** In the source's unit, of `total`. */
  readonly done: number
  readonly total: number | undefined
}

export interface BackfillOperation extends BackfillCounts {
  readonly id: string
  readonly runner: string
  readonly cursor: string | undefined
  readonly isFinished: boolean
}

/**
 * `new` begins, and is refused while there is an unfinished one. `resume` goes on with an unfinished one, begins if there is
 * none, and does nothing if the last one is finished. `restart` gives an unfinished one up and begins.
 */
export type BackfillMode = 'new' | 'resume' | 'restart'

export interface OpenOptions {
  readonly schema: string
  readonly name: string
  readonly source: string
  readonly actor: string
  readonly mode: BackfillMode
  readonly measure: () => Promise<number | undefined>
}

/** Begins or takes over the operation of this name; REFUSED if the mode does not allow it. */
export async function openOperation(db: Database, options: OpenOptions): Promise<BackfillOperation> {
  const { schema, name, source, actor, mode } = options
  const runner = randomUUID()
  const total = await options.measure()
  return await transaction(db, async (tx) => {
    await execute(tx, lockOperations(schema))
    const findBackfills = findOperations(schema, 'backfill', ['name', name])
    const latest = await first(tx, findBackfills)
    if (latest !== undefined && mode === 'resume' && latest.state !== 'cancelled') {
      const { source: before } = JSON.parse(latest.arguments) as { readonly source: string }
      if (latest.state !== 'finished' && before !== source) throw otherSource(name, before, source)
      // What was just read may be old by now; what is taken over is not.
      const taken = await first(tx, takeOperation(schema, latest.id, runner))
      return read(taken ?? (await first(tx, findBackfills)) ?? latest, runner)
    }
    if (latest !== undefined && (latest.state === 'running' || latest.state === 'failed')) {
      if (mode === 'new') throw unfinished(name, latest.id)
      await execute(tx, saveOperation(schema, latest, { state: 'cancelled' }))
    }
    const id = newId()
    const counts = { rows: 0, emitted: 0, skipped: 0, done: 0, total }
    const started = { id, arguments: { name, source, actor }, progress: { runner, ...counts } }
    await execute(tx, startOperation(schema, 'backfill', started))
    return { id, runner, cursor: undefined, isFinished: false, ...counts }
  })
}

function read(row: OperationRow, runner: string): BackfillOperation {
  const { rows, emitted, skipped, done, total } = JSON.parse(row.progress) as BackfillCounts
  const isFinished = row.state === 'finished'
  const cursor = row.cursor === null ? undefined : (JSON.parse(row.cursor) as { readonly at: string }).at
  return { id: row.id, runner, cursor, isFinished, rows, emitted, skipped, done, total }
}

function unfinished(name: string, id: string): WaybillError {
  return new WaybillError(
    'REFUSED',
    `The backfill "${name}" has an unfinished operation ${id}. Resume it, which also takes it over from a process that still runs, or restart from the beginning.`,
    { details: { operation: id } },
  )
}

function otherSource(name: string, before: string, now: string): WaybillError {
  return new WaybillError(
    'REFUSED',
    `The backfill "${name}" began with ${before} and cannot go on with ${now}. Restart it from the beginning, or give the other source a name of its own.`,
  )
}
