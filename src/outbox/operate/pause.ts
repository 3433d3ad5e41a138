/**
 * Holds a stream, one aggregate or everything back: its events are recorded as ever and wait.
 *
 * Relays hear of a pause within one renewal of their leases (1.5 s by default); what is under way then still goes out.
 * Resuming makes what waited due at once, in order. Both are audited. Nothing else is affected: the lanes are locked one after
 * another, each for a batch at a time, so that relays keep theirs however much has waited.
 *
 * While everything is paused relays keep their lanes and read nothing, so no stream has to be known, and none to be woken.
 */
import { WaybillError } from '../../core/errors.ts'
import { execute, one, rows, type Database, type Queryable } from '../../postgres/query/database.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { lockDispatching, selectDispatching } from '../tables/cdc-switch.sql.ts'
import type { Outbox } from '../outbox.ts'
import { lockLanes } from '../tables/parked.sql.ts'
import { deletePause, insertPause, selectLanes, pausedError, selectPauses, wakePaused } from '../tables/pause.sql.ts'

export interface Pause {
  /** `undefined` for everything. */
  readonly aggregateType: string | undefined
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
  readonly aggregateType?: string | undefined
  /** One aggregate of it. @default the whole stream */
  readonly aggregateId?: string | undefined
  /** In place of a stream: everything, also streams that nobody has written to yet. @default false */
  readonly all?: boolean | undefined
  /** Who does it, for the audit log. */
  readonly actor: string
  /** Why, for the audit log and for whoever finds it paused. */
  readonly reason?: string | undefined
}

/** Heads that are woken while their lane is locked. */
const batchSize = 500

/** What is paused now. */
export async function listPauses(db: Queryable, outbox: Pick<Outbox, 'tables'>): Promise<readonly Pause[]> {
  return (await rows(db, selectPauses(outbox.tables))).map((row) => ({
    aggregateType: row.aggregate_type === '' ? undefined : row.aggregate_type,
    aggregateId: row.aggregate_id === '' ? undefined : row.aggregate_id,
    reason: row.reason,
    pausedBy: row.paused_by,
    pausedAt: row.paused_at,
  }))
}

/** What a pause is of, in words. */
export function pauseSubject({ aggregateType, aggregateId }: Pick<Pause, 'aggregateType' | 'aggregateId'>): string {
  if (aggregateType === undefined) return 'everything'
  return aggregateId === undefined ? aggregateType : `${aggregateType} ${aggregateId}`
}

/** Holds back; returns `false` if it was paused already. REFUSED while a connector publishes. */
export async function pauseOutbox(action: PauseAction): Promise<boolean> {
  const { db, outbox, actor, reason = '' } = action
  const { aggregateType, aggregateId } = named(action)
  return await transaction(db, async (tx) => {
    await refuseConnector(tx, outbox)
    const row = { aggregate_type: aggregateType, aggregate_id: aggregateId, reason, paused_by: actor }
    if ((await execute(tx, insertPause(outbox.tables, row))) === 0) return false
    const details = { aggregateType, aggregateId, reason }
    await one(tx, insertAudit(outbox.tables.schema, { actor, action: 'outbox.pause', details }))
    return true
  })
}

/** A switch to a connector looks for pauses and this looks for a switch: the lock lets one of them see the other. */
async function refuseConnector(tx: Queryable, { tables }: Pick<Outbox, 'tables'>): Promise<void> {
  await rows(tx, lockDispatching(tables))
  if ((await one(tx, selectDispatching(tables))).dispatching) return
  throw new WaybillError(
    'REFUSED',
    'A connector publishes the outbox, and heeds no pause. To hold events back, stop the connector: they wait in its slot.',
  )
}

/**
 * Lets go again; returns how many aggregates had to be woken, which is none where everything was paused, or `undefined` if it was
 * not paused. If it is interrupted, nothing is paused any more, and what it has not woken yet is woken by resuming once more, or
 * goes on by itself after some minutes.
 */
export async function resumeOutbox(action: PauseAction): Promise<number | undefined> {
  const { db, outbox, actor, reason = '' } = action
  const { aggregateType, aggregateId } = named(action)
  const resumed = await transaction(db, async (tx) => {
    if ((await execute(tx, deletePause(outbox.tables, aggregateType, aggregateId))) === 0) return false
    const details = { aggregateType, aggregateId, reason }
    await one(tx, insertAudit(outbox.tables.schema, { actor, action: 'outbox.resume', details }))
    return true
  })
  if (aggregateType === '') return resumed ? 0 : undefined
  let woken = 0
  for (const { lane } of await rows(db, selectLanes(outbox.tables, { aggregateType, aggregateId }))) {
    woken += await wakeLane({ db, outbox, aggregateType, aggregateId }, lane)
  }
  return resumed || woken > 0 ? woken : undefined
}

/** What becomes a head behind the batches that are done was stopped after the pause was gone, so it needs no waking. */
async function wakeLane({ db, outbox, ...pause }: Resumed, lane: number): Promise<number> {
  let woken = 0
  let after = '0'
  for (;;) {
    const batch = await transaction(db, async (tx) => {
      await rows(tx, lockLanes(outbox.tables, [lane]))
      return await one(tx, wakePaused(outbox.tables, { ...pause, lane, after, limit: batchSize, marker: pausedError }))
    })
    woken += batch.woken
    if (batch.looked < batchSize) return woken
    after = batch.last
  }
}

interface Named {
  readonly aggregateType: string
  readonly aggregateId: string
}

type Resumed = Pick<PauseAction, 'db' | 'outbox'> & Named

/** As it is stored. Everything has to be asked for: a type that somebody forgot must not stop the service. */
function named({ aggregateType, aggregateId, all = false }: PauseAction): Named {
  const isNamed = aggregateType !== undefined && aggregateType !== '' && aggregateId !== ''
  const isBare = aggregateType === undefined && aggregateId === undefined
  if (all === true ? isBare : isNamed) return { aggregateType: aggregateType ?? '', aggregateId: aggregateId ?? '' }
  throw new WaybillError(
    'INVALID_OPTION',
    'Pause and resume need a stream, or a stream and the id of one aggregate, not empty; or all alone.',
  )
}
