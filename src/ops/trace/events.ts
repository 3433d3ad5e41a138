/**
 * Gathers what services know of events: the owner's outbox and receipts, each consumer's inbox and what stands in its way, the
 * rows of projections, and the events that consumers emitted because of them, which are followed in turn.
 */
import { inboxTables } from '../../consumer/tables/inbox.sql.ts'
import { redactedMessage } from '../../core/redact.ts'
import { outboxTables } from '../../outbox/tables/outbox.sql.ts'
import { first, rows } from '../../postgres/query/database.ts'
import {
  selectDeliveries,
  selectEmitted,
  selectProjected,
  selectPublishes,
  selectTracedEvents,
  type DeliveryRow,
  type PublishRow,
  type TracedEventRow,
} from './trace.sql.ts'
import type { DeliveryState, NamedService, TracedDelivery, TracedEvent, TracedProjection } from './report.ts'

/** A request that caused more is shown by its first. */
const mostEvents = 200

interface Gathered {
  readonly id: string
  readonly causedBy: TracedEvent['causedBy']
  recorded?: { readonly service: string; readonly row: TracedEventRow }
  readonly publishes: PublishRow[]
}

/** The events that any service knows, and those that followed from them, in the order found. */
export async function gatherEvents(
  services: readonly NamedService[],
  ids: readonly string[],
  notes: string[],
): Promise<readonly TracedEvent[]> {
  const known = new Map<string, Gathered>()
  let next: readonly Gathered[] = ids.map((id) => ({ id, causedBy: undefined, publishes: [] }))
  while (next.length > 0) {
    const fresh = next.filter(({ id }) => !known.has(id)).slice(0, mostEvents - known.size)
    if (fresh.length < next.filter(({ id }) => !known.has(id)).length)
      notes.push(`More than ${mostEvents} events followed: the rest is not shown.`)
    for (const event of fresh) known.set(event.id, event)
    next = fresh.length === 0 ? [] : (await Promise.all(services.map((service) => look(service, fresh)))).flat()
  }
  const events = [...known.values()]
  const deliveries = (await Promise.all(services.map((service) => deliveriesAt(service, events, notes)))).flat()
  return events
    .map((event) =>
      toTraced(
        event,
        deliveries.filter(({ eventId }) => eventId === event.id).map(({ delivery }) => delivery),
      ),
    )
    .filter(isKnown)
}

/** Fills in what this service's outbox knows; returns what its consumers emitted. */
async function look({ name, db, schema }: NamedService, events: readonly Gathered[]): Promise<readonly Gathered[]> {
  const tables = outboxTables(schema)
  const byId = new Map(events.map((event) => [event.id, event]))
  const ids = [...byId.keys()]
  for (const row of await rows(db, selectTracedEvents(tables, ids))) {
    const event = byId.get(row.id)
    if (event !== undefined) event.recorded = { service: name, row }
  }
  for (const row of await rows(db, selectPublishes(tables, ids))) byId.get(row.event_id)?.publishes.push(row)
  return (await rows(db, selectEmitted(tables, ids))).map((row) => ({
    id: row.event_id,
    causedBy: { eventId: row.source_event_id, consumer: row.source },
    publishes: [],
  }))
}

async function deliveriesAt(
  service: NamedService,
  events: readonly Gathered[],
  notes: string[],
): Promise<readonly { readonly eventId: string; readonly delivery: TracedDelivery }[]> {
  if (events.length === 0) return []
  const names = events.map(({ id, recorded }) => ({
    id,
    aggregateType: recorded?.row.aggregate_type,
    aggregateId: recorded?.row.aggregate_id,
  }))
  const byId = new Map(events.map((event) => [event.id, event]))
  const found: { eventId: string; delivery: TracedDelivery }[] = []
  for (const row of await rows(service.db, selectDeliveries(inboxTables(service.schema), names))) {
    const event = byId.get(row.event_id)?.recorded?.row
    const state = stateOf(row, event)
    const isReader = readsStream(service, row.consumer, event)
    if (state === undefined && !isReader) continue
    const projections = await projectionsOf(service, { consumer: row.consumer, event }, notes)
    found.push({ eventId: row.event_id, delivery: toDelivery(service, row, { state: state ?? 'unseen', projections }) })
  }
  return found
}

const storedStates: readonly DeliveryState[] = ['stored', 'retrying', 'held', 'dead', 'waiting']

/** The state that a consumer's rows say; `undefined` if there are none. */
function stateOf(row: DeliveryRow, event: TracedEventRow | undefined): DeliveryState | undefined {
  if (row.processed_at !== null) return 'applied'
  if (row.letter_state === 'dead' || row.letter_state === 'redriving' || row.letter_state === 'discarded') return row.letter_state
  if (row.stored_state !== null) return storedStates[row.stored_state]
  if ((row.attempts ?? 0) > 0) return 'failing'
  return event !== undefined && row.position !== null && BigInt(row.position) >= BigInt(event.version) ? 'passed' : undefined
}

function readsStream({ consumers = [] }: NamedService, name: string, event: TracedEventRow | undefined): boolean {
  const consumer = consumers.find(({ settings }) => settings.name === name)
  return consumer?.settings.streams.some(({ aggregateType }) => aggregateType === event?.aggregate_type) ?? false
}

async function projectionsOf(
  { consumers = [], db, name }: NamedService,
  { consumer, event }: { readonly consumer: string; readonly event: TracedEventRow | undefined },
  notes: string[],
): Promise<readonly TracedProjection[]> {
  const all = consumers.find(({ settings }) => settings.name === consumer)?.routes().projections ?? []
  const found: TracedProjection[] = []
  for (const projection of all.filter(({ stream }) => stream.aggregateType === event?.aggregate_type)) {
    const table = projection.tableText
    try {
      const row = await first(db, selectProjected(projection, projection.keyOf(event?.aggregate_id ?? '')))
      found.push({ table, version: row?.version, deleted: (row?.deleted_at ?? null) !== null })
    } catch (error) {
      notes.push(`${name}: ${table} could not be read: ${redactedMessage(error)}`)
    }
  }
  return found
}

function toDelivery(
  { name }: NamedService,
  row: DeliveryRow,
  { state, projections }: Pick<TracedDelivery, 'state' | 'projections'>,
): TracedDelivery {
  const isDead = row.letter !== null && ['dead', 'redriving', 'discarded'].includes(state)
  const settled = state === 'applied' ? row.processed_at : isDead ? row.dead_at : (row.received_at ?? row.failed_at)
  const error = isDead ? row.letter_error : (row.stored_error ?? row.attempt_error)
  return {
    service: name,
    consumer: row.consumer,
    state,
    at: settled ?? undefined,
    attempts: isDead ? (row.letter_attempts ?? 0) : Math.max(row.attempts ?? 0, row.stored_attempts ?? 0),
    error: state === 'applied' ? undefined : (error ?? undefined),
    nextAttemptAt: row.next_attempt_at ?? undefined,
    deadLetter: row.letter === null ? undefined : { id: row.letter, reason: row.letter_reason ?? '' },
    position: row.position ?? undefined,
    projections,
  }
}

function toTraced({ id, causedBy, recorded, publishes }: Gathered, deliveries: readonly TracedDelivery[]): TracedEvent {
  return {
    eventId: id,
    recorded: recorded === undefined ? undefined : toRecorded(recorded.service, recorded.row),
    causedBy,
    dispatch: recorded === undefined || recorded.row.state === 'PUBLISHED' ? undefined : toDispatch(recorded.row),
    publishes: publishes.map((row) => ({
      at: row.published_at,
      attempts: row.attempts,
      relay: row.relay,
      messageId: row.message_id,
    })),
    deliveries,
  }
}

function toRecorded(service: string, row: TracedEventRow): TracedEvent['recorded'] {
  return {
    service,
    at: row.occurred_at,
    topic: row.topic,
    aggregateType: row.aggregate_type,
    aggregateId: row.aggregate_id,
    version: row.version,
    eventType: row.event_type,
  }
}

function toDispatch(row: TracedEventRow): TracedEvent['dispatch'] {
  return {
    state: row.state,
    attempts: row.attempts,
    lane: row.lane ?? undefined,
    relay: row.relay ?? undefined,
    nextRetryAt: row.next_retry_at ?? undefined,
    parkedAt: row.parked_at ?? undefined,
    error: row.last_error ?? undefined,
  }
}

function isKnown({ recorded, publishes, deliveries, causedBy }: TracedEvent): boolean {
  return recorded !== undefined || causedBy !== undefined || publishes.length > 0 || deliveries.length > 0
}
