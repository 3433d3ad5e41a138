/**
 * An outbox as an operator sees it: what waits, who works on it, what is held back and where an event is.
 */
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import { parseId } from '../../core/event/id.ts'
import { readBacklog, type Backlog } from '../../outbox/tables/backlog.sql.ts'
import { selectDispatching } from '../../outbox/tables/cdc-switch.sql.ts'
import type { Outbox } from '../../outbox/outbox.ts'
import { listPauses, type Pause } from '../../outbox/operate/pause.ts'
import { one, rows, type Database, type Queryable, type Tx } from '../../postgres/query/database.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { transaction, transactionOptions } from '../../postgres/transaction/transaction.ts'
import { callChangeLanes, selectHistory, selectLanes, selectRelays, selectWaiting, type OutboxEventRow } from './outbox.sql.ts'
import type { OutboxState } from './outbox-states.ts'

type Of = Pick<Outbox, 'tables'>

export interface OutboxStatus {
  /** `false` while a connector reads the outbox in place of relays. */
  readonly dispatching: boolean
  readonly backlog: Backlog
  readonly relays: readonly { readonly relay: string; readonly lanes: number; readonly seenMs: number }[]
  readonly pauses: readonly Pause[]
}

/** Everything at one glance. */
export async function outboxStatus(db: Queryable, outbox: Of): Promise<OutboxStatus> {
  const { dispatching } = await one(db, selectDispatching(outbox.tables))
  const relays = await rows(db, selectRelays(outbox.tables, defaults.relay.leaseMs))
  return {
    dispatching,
    backlog: await one(db, readBacklog(outbox.tables, null)),
    relays: relays.map(({ relay, lanes, seen_ms }) => ({ relay, lanes, seenMs: seen_ms })),
    pauses: await listPauses(db, outbox),
  }
}

export interface OutboxListing {
  readonly state?: OutboxState | undefined
  readonly aggregateType?: string | undefined
  readonly aggregateId?: string | undefined
  readonly eventId?: string | undefined
  /** @default 50 */
  readonly limit?: number | undefined
}

export interface ListedEvent {
  readonly eventId: string
  readonly topic: string | undefined
  readonly aggregateType: string | undefined
  readonly aggregateId: string | undefined
  readonly version: string | undefined
  readonly eventType: string | undefined
  readonly state: OutboxState
  readonly occurredAt: string | undefined
  readonly publishedAt: string | undefined
  readonly attempts: number
  readonly nextRetryAt: string | undefined
  readonly error: string | undefined
  readonly messageId: string | undefined
}

/** The history of one aggregate or event; otherwise what waits, oldest first. */
export async function listOutbox(db: Queryable, { tables }: Of, listing: OutboxListing = {}): Promise<readonly ListedEvent[]> {
  const { state, aggregateType, aggregateId, eventId, limit = 50 } = listing
  if (eventId !== undefined) {
    return (await rows(db, selectHistory(tables, { eventId: parseId(eventId, 'the event id'), limit }))).map(toListedEvent)
  }
  if (aggregateId !== undefined) {
    if (aggregateType === undefined)
      throw new WaybillError('INVALID_OPTION', 'An aggregate is named by its type and its id: the type is missing.')
    const history = await rows(db, selectHistory(tables, { aggregateType, aggregateId, limit }))
    return history.map(toListedEvent).filter((event) => state === undefined || event.state === state)
  }
  if (state === 'PUBLISHED')
    throw new WaybillError('INVALID_OPTION', 'Published events are listed for one aggregate: name its type and its id.')
  return (await rows(db, selectWaiting(tables, { state, aggregateType, limit }))).map(toListedEvent)
}

export interface LaneStatus {
  readonly lane: number
  readonly owner: string | undefined
  /** Below 0 for a lease that has run out. */
  readonly expiresInMs: number | undefined
  readonly due: number
  readonly retrying: number
  readonly held: number
  readonly parked: number
}

/** Every lane, with who works it and what waits in it. */
export async function listLanes(db: Queryable, { tables }: Of): Promise<readonly LaneStatus[]> {
  return (await rows(db, selectLanes(tables))).map(({ owner, expires_in_ms: expiresInMs, ...counts }) => ({
    ...counts,
    owner: owner ?? undefined,
    expiresInMs: expiresInMs ?? undefined,
  }))
}

/** Changes the number of lanes. Writers and relays wait while every waiting row moves; audited. */
export async function changeLanes(
  db: Database,
  { tables }: Of,
  { lanes, actor }: { readonly lanes: number; readonly actor: string },
): Promise<void> {
  const change = async (tx: Tx): Promise<void> => {
    await rows(tx, callChangeLanes(tables, lanes))
    await one(tx, insertAudit(tables.schema, { actor, action: 'outbox.lanes', details: { lanes } }))
  }
  await transaction(db, change, withoutTimeout)
}

/** A backlog of millions takes its time; given up halfway it would be moved back, and have stopped the writers for nothing. */
const withoutTimeout = transactionOptions({ statementTimeoutMs: 0 })

function toListedEvent(row: OutboxEventRow): ListedEvent {
  return {
    eventId: row.id,
    topic: row.topic ?? undefined,
    aggregateType: row.aggregate_type ?? undefined,
    aggregateId: row.aggregate_id ?? undefined,
    version: row.version ?? undefined,
    eventType: row.event_type ?? undefined,
    state: row.state,
    occurredAt: row.occurred_at ?? undefined,
    publishedAt: row.published_at ?? undefined,
    attempts: row.publish_attempts,
    nextRetryAt: row.next_retry_at ?? undefined,
    error: row.last_error ?? undefined,
    messageId: row.message_id ?? undefined,
  }
}
