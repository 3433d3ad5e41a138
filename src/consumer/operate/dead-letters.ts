/**
 * What an operator sees of dead letters: how many of which kind, which ones, and everything that is known of one.
 */
import { chosen, type Chosen, refuseUnknown } from '../../core/options.ts'
import { WaybillError } from '../../core/errors.ts'
import { parseId } from '../../core/event/id.ts'
import { first, rows, type Queryable } from '../../postgres/query/database.ts'
import { selectGroups, selectLetterDetail, selectLetters } from '../tables/operate.sql.ts'
import type { DeadLetterFilter, DeadLetterState, LetterRow } from '../tables/operate.sql.ts'
import { inboxTables } from '../tables/inbox.sql.ts'

export type { DeadLetterFilter, DeadLetterState } from '../tables/operate.sql.ts'

/** Where dead letters are. */
export interface DeadLetterStore<Db extends Queryable = Queryable> {
  readonly db: Db
  readonly schema: string
}

/** Letters with the same consumer, reason and event type. */
export interface DeadLetterGroup {
  readonly consumer: string
  readonly reason: string
  readonly eventType: string
  readonly count: number
  readonly oldestAt: string
  readonly newestAt: string
  /** The number of the newest: with it as `upTo` a filter means those that were counted here. */
  readonly newestId: string
  /** The newest error of the group. */
  readonly error: string
}

export interface DeadLetter {
  readonly id: string
  readonly consumer: string
  readonly eventId: string
  readonly eventType: string
  /** `undefined`, like its id and version, for a message that is no event of ours. */
  readonly aggregateType: string | undefined
  readonly aggregateId: string | undefined
  readonly version: string | undefined
  readonly reason: string
  readonly error: string
  readonly attempts: number
  readonly redrives: number
  readonly state: DeadLetterState
  readonly deadAt: string
  /** Later messages of the aggregate that wait, if this letter holds them. */
  readonly holding: number
}

export interface DeadLetterDetail extends DeadLetter {
  readonly generation: number
  readonly topic: string
  readonly orderingKey: string | undefined
  readonly messageId: string
  readonly attributes: Readonly<Record<string, string>>
  /** Only if it was asked for. */
  readonly body: Uint8Array | undefined
  readonly publishedAt: string
  readonly firstFailedAt: string
  /** What happened to it, oldest first. */
  readonly history: readonly Readonly<Record<string, unknown>>[]
}

/** The letters by consumer, reason and type. */
export async function groupDeadLetters(
  { db, schema }: DeadLetterStore,
  { state = 'dead', ...filter }: DeadLetterFilter & { readonly state?: DeadLetterState | undefined } = {},
): Promise<readonly DeadLetterGroup[]> {
  return (await rows(db, selectGroups(inboxTables(schema), checkedFilter(filter), state))).map((row) => ({
    consumer: row.consumer,
    reason: row.reason,
    eventType: row.event_type,
    count: row.count,
    oldestAt: row.oldest_at,
    newestAt: row.newest_at,
    newestId: row.newest_id,
    error: row.error,
  }))
}

/** The letters themselves, in the order they died. */
export async function listDeadLetters(
  { db, schema }: DeadLetterStore,
  {
    state,
    limit = 100,
    ...filter
  }: DeadLetterFilter & { readonly state?: DeadLetterState | undefined; readonly limit?: number | undefined } = {},
): Promise<readonly DeadLetter[]> {
  const page = { states: state === undefined ? undefined : [state], after: '0', limit }
  return (await rows(db, selectLetters(inboxTables(schema), checkedFilter(filter), page))).map(toDeadLetter)
}

export interface ShowDeadLetterOptions {
  /** Read the body, too: the database role needs the right, as a member of `…_payloads`. @default false */
  readonly payload?: boolean
}

/** Everything about one letter; NOT_FOUND if there is none. */
export async function showDeadLetter(
  { db, schema }: DeadLetterStore,
  id: string,
  options: ShowDeadLetterOptions = {},
): Promise<DeadLetterDetail> {
  refuseUnknown('showDeadLetter', options, ['payload'])
  const tables = inboxTables(schema)
  const letter = await first(db, selectLetters(tables, checkedFilter({ ids: [id] }), { states: undefined, after: '0', limit: 1 }))
  const detail =
    letter === undefined ? undefined : await first(db, selectLetterDetail(tables, letter.id, options.payload === true))
  if (letter === undefined || detail === undefined) throw new WaybillError('NOT_FOUND', `There is no dead letter ${id}.`)
  return {
    ...toDeadLetter(letter),
    generation: detail.generation,
    topic: detail.topic,
    orderingKey: detail.ordering_key ?? undefined,
    messageId: detail.message_id,
    attributes: JSON.parse(detail.attributes) as Record<string, string>,
    body: detail.body ?? undefined,
    publishedAt: detail.published_at,
    firstFailedAt: detail.first_failed_at,
    history: JSON.parse(detail.history) as Record<string, unknown>[],
  }
}

const fields = Object.keys({
  consumer: true,
  reason: true,
  eventType: true,
  ids: true,
  eventId: true,
  aggregateType: true,
  aggregateId: true,
  upTo: true,
} satisfies Record<keyof DeadLetterFilter, true>)

/** The filter of an action, or INVALID_OPTION for one that names nothing. */
export function chosenLetters(filter: Chosen<DeadLetterFilter>): DeadLetterFilter {
  const meant = chosen<DeadLetterFilter>(fields, filter)
  if (meant.upTo !== undefined && Object.keys(meant).length === 1)
    throw new WaybillError('INVALID_OPTION', 'filter.upTo: it names nothing by itself. Say which letters, up to this one.')
  return checkedFilter(meant)
}

/** The filter, or INVALID_OPTION for one that nothing can fit. */
function checkedFilter(filter: DeadLetterFilter): DeadLetterFilter {
  refuseUnknown('filter', filter, fields)
  if (filter.aggregateId !== undefined && filter.aggregateType === undefined)
    throw new WaybillError('INVALID_OPTION', 'An aggregate is named by its type and its id: the type is missing.')
  for (const id of [...(filter.ids ?? []), ...(filter.upTo === undefined ? [] : [filter.upTo])])
    if (!/^[1-9][0-9]{0,17}$/.test(id)) throw new WaybillError('INVALID_OPTION', `"${id}" is not the number of a dead letter.`)
  return filter.eventId === undefined ? filter : { ...filter, eventId: parseId(filter.eventId, 'the event id') }
}

export function toDeadLetter(row: LetterRow): DeadLetter {
  return {
    id: row.id,
    consumer: row.consumer,
    eventId: row.event_id,
    eventType: row.event_type,
    aggregateType: row.aggregate_type ?? undefined,
    aggregateId: row.aggregate_id ?? undefined,
    version: row.version ?? undefined,
    reason: row.reason,
    error: row.error,
    attempts: row.attempts,
    redrives: row.redrives,
    state: row.state,
    deadAt: row.dead_at,
    holding: row.holds ? row.waiting : 0,
  }
}
