/**
 * A trace as one line of time: what happened, where, in the order of its moments; what has no moment stands behind what it
 * belongs to. Clocks of different databases differ a little, so an effect may seem to come before its cause.
 */
import type { Trace, TracedDelivery, TracedEvent, TracedRequest } from './trace-report.ts'

export interface TraceEntry {
  /** `undefined` for what is so now. */
  readonly at: string | undefined
  readonly service: string
  readonly text: string
}

/** The entries of a trace, first things first. */
export function traceTimeline({ request, events }: Trace): readonly TraceEntry[] {
  const groups = [...(request === undefined ? [] : [[requestEntry(request)]]), ...events.flatMap(eventGroups)]
  return groups
    .map((group, place) => ({ group, at: group[0]?.at, place }))
    .toSorted((a, b) => compareMoments(a.at, b.at) || a.place - b.place)
    .flatMap(({ group }) => group)
}

/** What has no moment comes last. */
function compareMoments(a: string | undefined, b: string | undefined): number {
  if (a === b) return 0
  if (a === undefined || b === undefined) return a === undefined ? 1 : -1
  return a < b ? -1 : 1
}

function requestEntry({ service, command, principal, requestId, rejected, at }: TracedRequest): TraceEntry {
  const end = rejected ? 'rejected, and that is remembered' : 'committed'
  return { at, service, text: `${command} of ${principal}, request ${requestId}: ${end}` }
}

/** Each group stays together: its first entry has the moment. */
function eventGroups(event: TracedEvent): readonly (readonly TraceEntry[])[] {
  const { recorded, causedBy, dispatch, publishes, deliveries, eventId } = event
  const owner = recorded?.service ?? ''
  const groups: (readonly TraceEntry[])[] = []
  if (recorded !== undefined) {
    const cause = causedBy === undefined ? '' : `, emitted by ${causedBy.consumer} for event ${causedBy.eventId}`
    const { eventType, aggregateType, aggregateId, version, topic } = recorded
    const text = `${eventType} ${eventId}: ${aggregateType} ${aggregateId}, version ${version}, for ${topic}${cause}`
    groups.push([{ at: recorded.at, service: owner, text }])
  } else groups.push([{ at: undefined, service: owner, text: `${eventId} is in no outbox that was looked at` }])
  for (const { at, attempts, relay, messageId } of publishes)
    groups.push([
      { at, service: owner, text: `${nameOf(event)} published by ${relay}, attempt ${attempts}, message ${messageId}` },
    ])
  if (dispatch !== undefined) groups.push([{ at: undefined, service: owner, text: dispatchText(event, dispatch) }])
  for (const delivery of deliveries) groups.push(deliveryGroup(event, delivery))
  return groups
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

function deliveryGroup(event: TracedEvent, delivery: TracedDelivery): readonly TraceEntry[] {
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
