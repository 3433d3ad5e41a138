/**
 * Holds a stream or one aggregate back: its events are recorded as ever and wait.
 *
 * Relays hear of a pause within one renewal of their leases (1.5 s by default); what is under way then still goes out.
 * Resuming makes what waited due at once, in order. Both are audited. Nothing else is affected.
 */
import { WaybillError } from '../core/errors.ts'
import { execute, one, rows, type Database, type Queryable } from '../postgres/database.ts'
import { insertAudit } from '../postgres/migrate.sql.ts'
import { transaction } from '../postgres/transaction.ts'
import type { Outbox } from './outbox.ts'
import { deletePause, insertPause, lockAllLanes, selectPauses, wakePaused } from './pause.sql.ts'
import { pausedError } from './relay-plan.ts'

export interface Pause {
  readonly aggregateType: string
  /** `undefined` for the whole stream. */
  readonly aggregateId: string | undefined
  readonly reason: string
  readonly pausedBy: string
  readonly pausedAt: string
}

export interface PauseAction {
  readonly db: Database
  readonly outbox: Pick<Outbox, 'tables'>
  /** The stream's aggregate type. */
  readonly aggregateType: string
  /** One aggregate of it. @default the whole stream */
  readonly aggregateId?: string | undefined
  /** Who does it, for the audit log. */
  readonly actor: string
  /** Why, for the audit log and for whoever finds it paused. */
  readonly reason?: string | undefined
}

/** What is paused now. */
export async function listPauses(db: Queryable, outbox: Pick<Outbox, 'tables'>): Promise<readonly Pause[]> {
  return (await rows(db, selectPauses(outbox.tables))).map((row) => ({
    aggregateType: row.aggregate_type,
    aggregateId: row.aggregate_id === '' ? undefined : row.aggregate_id,
    reason: row.reason,
    pausedBy: row.paused_by,
    pausedAt: row.paused_at,
  }))
}

/** Holds back; returns `false` if it was paused already. */
export async function pauseOutbox(action: PauseAction): Promise<boolean> {
  const { db, outbox, actor, reason = '' } = action
  const { aggregateType, aggregateId } = named(action)
  return await transaction(db, async (tx) => {
    const row = { aggregate_type: aggregateType, aggregate_id: aggregateId, reason, paused_by: actor }
    if ((await execute(tx, insertPause(outbox.tables, row))) === 0) return false
    const details = { aggregateType, aggregateId, reason }
    await one(tx, insertAudit(outbox.tables.schema, { actor, action: 'outbox.pause', details }))
    return true
  })
}

/** Lets go again; returns how many aggregates had waited, or `undefined` if it was not paused. */
export async function resumeOutbox(action: PauseAction): Promise<number | undefined> {
  const { db, outbox, actor, reason = '' } = action
  const { aggregateType, aggregateId } = named(action)
  return await transaction(db, async (tx) => {
    if ((await execute(tx, deletePause(outbox.tables, aggregateType, aggregateId))) === 0) return undefined
    await rows(tx, lockAllLanes(outbox.tables))
    const woken = await execute(tx, wakePaused(outbox.tables, { aggregateType, aggregateId, marker: pausedError }))
    const details = { aggregateType, aggregateId, reason, woken }
    await one(tx, insertAudit(outbox.tables.schema, { actor, action: 'outbox.resume', details }))
    return woken
  })
}

function named({ aggregateType, aggregateId }: PauseAction): { readonly aggregateType: string; readonly aggregateId: string } {
  if (aggregateType === '' || aggregateId === '') {
    throw new WaybillError(
      'INVALID_OPTION',
      'Pause and resume need a stream, or a stream and the id of one aggregate, not empty.',
    )
  }
  return { aggregateType, aggregateId: aggregateId ?? '' }
}
