/**
 * A trace as one line of time: every cause before its effects, and what does not follow from each other in the order of its moments.
 *
 *   request ─▶ recorded ─▶ published ─▶ what became of it at a consumer ─▶ recorded: what the consumer emitted
 *
 * Moments alone would not do: two databases have two clocks, and the receipt of a publish is written when the consumer may be done
 * already. What has no moment stands where its effects need it; what is so now, and has none, comes last.
 */
import type { Trace, TracedDelivery, TracedEvent, TracedRequest } from './report.ts'

export interface TraceEntry {
  /** `undefined` for what is so now. */
  readonly at: string | undefined
  readonly service: string
  readonly text: string
}

/** The entries of a trace, first things first. */
export function traceTimeline({ request, events }: Trace): readonly TraceEntry[] {
  const groups = [...(request === undefined ? [] : [requestGroup(request)]), ...events.flatMap(eventGroups)]
  return causesFirst(groups).flatMap(({ entries }) => entries)
}

/** Entries that stay together; the first has the moment. */
interface Group {
  readonly name: string
  /** The names of its causes; those that the trace does not have count for nothing. */
  readonly after: readonly string[]
  readonly entries: readonly TraceEntry[]
}

/** Takes the earliest of the groups whose causes are placed, until none is left. */
function causesFirst(groups: readonly Group[]): readonly Group[] {
  const causes = new Set(groups.flatMap(({ after }) => after))
  const momentOf = ({ name, entries }: Group): string => entries[0]?.at ?? (causes.has(name) ? '' : afterAll)
  const open = groups.toSorted((a, b) => compare(momentOf(a), momentOf(b)))
  const waiting = new Set(open.map(({ name }) => name))
  const placed: Group[] = []
  while (open.length > 0) {
    const ready = open.findIndex(({ after }) => !after.some((name) => waiting.has(name)))
    // Causes in a circle are those of a damaged history, which is shown all the same.
    for (const group of open.splice(Math.max(ready, 0), 1)) {
      waiting.delete(group.name)
      placed.push(group)
    }
  }
  return placed
}

/** Behind every moment. */
const afterAll = '~'

function compare(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}

function requestGroup({ service, command, principal, requestId, rejected, at }: TracedRequest): Group {
  const end = rejected ? 'rejected, and that is remembered' : 'committed'
  const entry = { at, service, text: `${command} of ${principal}, request ${requestId}: ${end}` }
  return { name: 'request', after: [], entries: [entry] }
}

function eventGroups(event: TracedEvent): readonly Group[] {
  const { recorded, dispatch, publishes, deliveries, eventId } = event
  const service = recorded?.service ?? ''
  const [added, confirmed] = [recordedName(eventId), `${eventId} published 0`]
  const entry = { at: recorded?.at, service, text: recordedText(event) }
  const sent = publishes.map(({ at, attempts, relay, messageId }, index): Group => {
    const text = `${nameOf(event)} published by ${relay}, attempt ${attempts}, message ${messageId}`
    return { name: `${eventId} published ${index}`, after: [added], entries: [{ at, service, text }] }
  })
  const pending = dispatch === undefined ? [] : [{ at: undefined, service, text: dispatchText(event, dispatch) }]
  return [
    { name: added, after: causesOf(event), entries: [entry] },
    ...sent,
    ...pending.map((each): Group => ({ name: `${eventId} pending`, after: [added], entries: [each] })),
    // A replay publishes once more, and nothing that was before follows from it.
    ...deliveries.map((delivery): Group => {
      const name = deliveryName(eventId, delivery)
      return { name, after: [added, confirmed], entries: deliveryEntries(event, delivery) }
    }),
  ]
}

/** A consumer's event is recorded by the service that the consumer belongs to. */
function causesOf({ causedBy, recorded }: TracedEvent): readonly string[] {
  if (causedBy === undefined) return ['request']
  const { eventId, consumer } = causedBy
  return [recordedName(eventId), deliveryName(eventId, { service: recorded?.service ?? '', consumer })]
}

function recordedName(eventId: string): string {
  return `${eventId} recorded`
}

function deliveryName(eventId: string, { service, consumer }: Pick<TracedDelivery, 'service' | 'consumer'>): string {
  return `${eventId} at ${consumer} of ${service}`
}

function recordedText({ eventId, recorded, causedBy }: TracedEvent): string {
  if (recorded === undefined) return `${eventId} is in no outbox that was looked at`
  const cause = causedBy === undefined ? '' : `, emitted by ${causedBy.consumer} for event ${causedBy.eventId}`
  const { eventType, aggregateType, aggregateId, version, topic } = recorded
  return `${eventType} ${eventId}: ${aggregateType} ${aggregateId}, version ${version}, for ${topic}${cause}`
}

function nameOf({ eventId, recorded }: TracedEvent): string {
  return recorded === undefined ? eventId : `${recorded.aggregateType} ${recorded.aggregateId} version ${recorded.version}`
}

function dispatchText(event: TracedEvent, dispatch: NonNullable<TracedEvent['dispatch']>): string {
  const { state, attempts, relay, nextRetryAt, parkedAt, error } = dispatch
  const parts = [
    `${nameOf(event)} not published: ${state}`,
    attempts === 0 ? undefined : `${attempts} attempts`,
    nextRetryAt === undefined || parkedAt !== undefined ? undefined : `next at ${nextRetryAt}`,
    relay === undefined ? 'no relay works its lane' : `its lane is worked by ${relay}`,
    error,
  ]
  return parts.filter((part) => part !== undefined).join(', ')
}

const sentences: Readonly<Record<TracedDelivery['state'], string>> = {
  applied: 'applied by',
  passed: 'passed by',
  stored: 'stored, to be applied by',
  retrying: 'failed, to be tried again by',
  held: 'held behind a failed one at',
  waiting: 'waits for its turn at',
  failing: 'fails at',
  dead: 'given up by',
  redriving: 'being redriven at',
  discarded: 'discarded by',
  unseen: 'not seen yet by',
}

function deliveryEntries(event: TracedEvent, delivery: TracedDelivery): readonly TraceEntry[] {
  const { service, consumer, state, at, attempts, error, deadLetter, nextAttemptAt, projections, position } = delivery
  const isStuck = error !== undefined
  const parts = [
    `${nameOf(event)} ${sentences[state]} ${consumer}`,
    deadLetter === undefined ? undefined : `dead letter ${deadLetter.id} (${deadLetter.reason})`,
    attempts === 0 ? undefined : `${attempts} failed attempts`,
    isStuck && nextAttemptAt !== undefined ? `next at ${nextAttemptAt}` : undefined,
    position === undefined ? undefined : `which is at version ${position}`,
    error,
  ]
  const shown = projections.map(({ table, version, deleted }): TraceEntry => {
    const has = version === undefined ? 'has no row' : `has version ${version}${deleted ? ', deleted' : ''}`
    return { at: undefined, service, text: `${table} ${has}` }
  })
  return [{ at, service, text: parts.filter((part) => part !== undefined).join(', ') }, ...shown]
}
