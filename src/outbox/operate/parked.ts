/**
 * What an operator does with events that gave up.
 *
 *   redrive  parked ──▶ due now, attempts 0, as itself    the cause was removed
 *   skip     parked ──▶ due now, as an empty marker       readers advance over its version and do nothing
 *   drop     parked ──▶ gone, with the event itself       leaves a gap in the versions: readers of deltas wait at it
 *
 * What is held behind a head stays held until the broker has confirmed what goes out in its place (or, after a drop, the
 * next one is promoted at once). Every action is serialised with the relays by the lane's row and leaves a line in the
 * audit log, in the same transaction.
 */
import { chosen, type Chosen, refuseUnknown } from '../../core/options.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import { parseId } from '../../core/event/id.ts'
import { one, rows, type Database, type Queryable, type Tx } from '../../postgres/query/database.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { settleDispatch, type RowIdentity } from '../tables/dispatch.sql.ts'
import type { Outbox } from '../outbox.ts'
import type { OutboxTables } from '../tables/outbox.sql.ts'
import { lockLanes, reviveParked, selectParked, selectQuiet, type ParkedFilter, type ParkedRow } from '../tables/parked.sql.ts'

export type { ParkedFilter } from '../tables/parked.sql.ts'

export interface ParkedEvent {
  readonly eventId: string
  readonly topic: string | undefined
  /** `undefined`, like the other facts of the event, if its row is missing: then it can only be dropped. */
  readonly aggregateType: string | undefined
  readonly aggregateId: string | undefined
  readonly version: string | undefined
  readonly eventType: string | undefined
  readonly occurredAt: string | undefined
  readonly parkedAt: string
  readonly attempts: number
  readonly error: string
  /** What was refused last is not the event but the empty marker in its place. */
  readonly void: boolean
  /** Events that wait behind it, counted up to 1,000. */
  readonly held: number
}

export interface ParkedAction {
  readonly db: Database
  readonly outbox: Pick<Outbox, 'tables'>
  /** Which of the parked events; `{ all: true }` for all of them. */
  readonly filter: Chosen<ParkedFilter>
  /** Who does it, for the audit log. */
  readonly actor: string
  /** Why, for the audit log. */
  readonly reason?: string | undefined
}

export interface ParkedOutcome {
  /** The events that were acted upon. */
  readonly events: readonly string[]
  /** Those that were left alone, with the reason. */
  readonly refused: readonly { readonly eventId: string; readonly reason: string }[]
}

/** Lanes are locked for one batch at a time, so that relays are not kept waiting. */
const batchSize = 500

/** The parked events, at most `limit` of them. */
export async function listParked(
  db: Queryable,
  outbox: Pick<Outbox, 'tables'>,
  { limit = 100, ...filter }: ParkedFilter & { readonly limit?: number } = {},
): Promise<readonly ParkedEvent[]> {
  return (await rows(db, selectParked(outbox.tables, checked(filter), { limit }))).map(toParkedEvent)
}

/** Makes parked events due again. */
export async function redriveParked(action: ParkedAction): Promise<ParkedOutcome> {
  return await inBatches(
    action,
    'outbox.redrive',
    async (tx, tables, heads) => await revive(tx, tables, { heads, asVoid: false }),
  )
}

/** Publishes an empty marker of the same id and version in place of each parked event. */
export async function skipParked(action: ParkedAction): Promise<ParkedOutcome> {
  return await inBatches(action, 'outbox.skip', async (tx, tables, heads) => {
    const known = heads.filter((head) => head.event.aggregateType !== undefined)
    const { events } = await revive(tx, tables, { heads: known, asVoid: true })
    return { events, refused: heads.filter((head) => !known.includes(head)).map((head) => refuse(head, missingEvent)) }
  })
}

export interface DropAction extends ParkedAction {
  /** The relays' `publishTimeoutMs` and `leaseMs`, if they are not the defaults. */
  readonly publishTimeoutMs?: number
  readonly leaseMs?: number
}

/**
 * Removes parked events and their dispatch rows; nothing is ever published for them. An event is dropped only once no
 * attempt to publish it can be under way any more: it could land behind its successors.
 */
export async function dropParked(action: DropAction): Promise<ParkedOutcome> {
  const { publishTimeoutMs = defaults.relay.publishTimeoutMs, leaseMs = defaults.relay.leaseMs, actor } = action
  return await inBatches(action, 'outbox.drop', async (tx, tables, heads) => {
    const states = await rows(tx, selectQuiet(tables, heads, publishTimeoutMs + leaseMs))
    const quiet = new Set(states.filter((row) => row.quiet).map((row) => row.event_id))
    const dropped = heads.filter((head) => quiet.has(head.eventId))
    const restless = heads.filter((head) => states.some((row) => !row.quiet && row.event_id === head.eventId))
    const confirmed = dropped.map((head) => ({ ...head, messageId: null }))
    const lanes = lanesOf(dropped).map((lane) => ({ lane, token: null }))
    await one(tx, settleDispatch(tables, actor, lanes, { confirmed, stopped: [], hold: [] }, { receipts: false, events: false }))
    const seconds = Math.ceil((publishTimeoutMs + leaseMs) / 1000)
    return {
      events: dropped.map((head) => head.eventId),
      refused: restless.map((head) => refuse(head, `parked less than ${seconds} s ago: an attempt may still be under way`)),
    }
  })
}

type ParkedHead = RowIdentity & { readonly event: ParkedEvent }
type Act = (tx: Tx, tables: OutboxTables, heads: readonly ParkedHead[]) => Promise<ParkedOutcome>

const missingEvent = 'its event is missing from the outbox, so there is nothing to publish; it can only be dropped'

async function inBatches(action: ParkedAction, name: string, act: Act): Promise<ParkedOutcome> {
  const { db, outbox, actor, reason } = action
  const filter = checked(chosen<ParkedFilter>(fields, action.filter))
  const events: string[] = []
  const refused: { eventId: string; reason: string }[] = []
  let after: RowIdentity | undefined
  for (;;) {
    const found = await rows(db, selectParked(outbox.tables, filter, { limit: batchSize, after }))
    if (found.length === 0) return { events, refused }
    const heads = found.map(toHead)
    after = heads.at(-1)
    const outcome = await transaction(db, async (tx) => {
      await rows(tx, lockLanes(outbox.tables, lanesOf(heads)))
      const done = await act(tx, outbox.tables, heads)
      if (done.events.length > 0) {
        const details = { reason, filter, events: heads.filter((head) => done.events.includes(head.eventId)).map(auditLine) }
        await one(tx, insertAudit(outbox.tables.schema, { actor, action: name, details }))
      }
      return done
    })
    events.push(...outcome.events)
    refused.push(...outcome.refused)
  }
}

async function revive(
  tx: Tx,
  tables: OutboxTables,
  { heads, asVoid }: { readonly heads: readonly ParkedHead[]; readonly asVoid: boolean },
): Promise<ParkedOutcome> {
  const revived = await rows(tx, reviveParked(tables, heads, { asVoid }))
  return { events: revived.map((row) => row.event_id), refused: [] }
}

const fields = Object.keys({
  eventId: true,
  aggregateType: true,
  aggregateId: true,
  error: true,
} satisfies Record<keyof ParkedFilter, true>)

function checked(filter: ParkedFilter): ParkedFilter {
  refuseUnknown('filter', filter, fields)
  if (filter.aggregateId !== undefined && filter.aggregateType === undefined) {
    throw new WaybillError('INVALID_OPTION', 'An aggregate is named by its type and its id: the type is missing.')
  }
  return filter.eventId === undefined ? filter : { ...filter, eventId: parseId(filter.eventId, 'the event id') }
}

function lanesOf(heads: readonly RowIdentity[]): readonly number[] {
  return [...new Set(heads.map((head) => head.lane))]
}

function refuse({ eventId }: RowIdentity, reason: string): { readonly eventId: string; readonly reason: string } {
  return { eventId, reason }
}

function toHead(row: ParkedRow): ParkedHead {
  return { lane: row.lane, seq: row.seq, eventId: row.event_id, event: toParkedEvent(row) }
}

/** Ids only: payloads do not belong into an audit log. */
function auditLine({ event }: ParkedHead): Record<string, unknown> {
  const { eventId, aggregateType, aggregateId, version, eventType, attempts, error } = event
  return { eventId, aggregateType, aggregateId, version, eventType, attempts, error }
}

function toParkedEvent(row: ParkedRow): ParkedEvent {
  return {
    eventId: row.event_id,
    topic: row.topic ?? undefined,
    aggregateType: row.aggregate_type ?? undefined,
    aggregateId: row.aggregate_id ?? undefined,
    version: row.version ?? undefined,
    eventType: row.event_type ?? undefined,
    occurredAt: row.occurred_at ?? undefined,
    parkedAt: row.parked_at,
    attempts: row.publish_attempts,
    error: row.last_error ?? '',
    void: row.void,
    held: row.held,
  }
}
