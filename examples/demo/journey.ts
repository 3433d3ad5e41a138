/**
 * The journey of one event through both services, as `waybill trace` tells it, in steps for the page: the request that caused it,
 * its commit, its publish, its effect, and where the projection is now.
 */
import { isWaybillError, trace, type Consumer, type Database, type TracedEvent } from 'waybill'

export interface Step {
  readonly place: string
  /** `undefined` for what is so now, and for what has not happened. */
  readonly atMs: number | undefined
  readonly isDone: boolean
  readonly details: string
}

export interface Journey {
  readonly eventId: string
  readonly title: string
  readonly steps: readonly Step[]
}

export interface JourneyParts {
  readonly video: Database
  readonly catalog: Database
  readonly consumer: Consumer
}

/** `undefined` if nobody knows the event. */
export async function journeyOf({ video, catalog, consumer }: JourneyParts, eventId: string): Promise<Journey | undefined> {
  const services = [
    { db: video, schema: 'waybill' },
    { db: catalog, schema: 'waybill', consumers: [consumer] },
  ]
  const found = await trace(services, { id: eventId }).catch((error: unknown) => {
    if (isWaybillError(error, 'NOT_FOUND')) return undefined
    throw error
  })
  const [event] = found?.events ?? []
  if (found === undefined || event?.recorded === undefined) return undefined
  const { eventType, aggregateType, aggregateId, version } = event.recorded
  const { request } = found
  const asked: Step[] =
    request === undefined
      ? []
      : [step('Asked for', request.at, `${request.command} by ${request.principal}, request ${request.requestId}`)]
  return {
    eventId: event.eventId,
    title: `${eventType} · ${aggregateType} ${aggregateId} · version ${version}`,
    steps: [...asked, ...eventSteps(event)],
  }
}

function eventSteps({ recorded, dispatch, publishes, deliveries }: TracedEvent): Step[] {
  const [publish] = publishes
  const [delivery] = deliveries
  const published =
    publish === undefined
      ? step('Confirmed by the broker', undefined, `not yet: ${dispatch?.state ?? 'unknown'}`)
      : step(
          'Confirmed by the broker',
          publish.at,
          `message ${publish.messageId}, attempt ${publish.attempts}, relay ${publish.relay}`,
        )
  const isApplied = delivery?.state === 'applied'
  const effect = `${delivery?.consumer ?? 'nobody'}: ${delivery?.state ?? 'unseen'}`
  const applied = step('Inbox, projection and effect, in one transaction', isApplied ? delivery.at : undefined, effect)
  const projections = (delivery?.projections ?? []).filter((each) => each.version !== undefined)
  const now = projections.map(({ table, version }) => `${table} has version ${version}`).join(', ')
  return [
    step('Committed with its state change', recorded?.at, `outbox of ${recorded?.service}, for topic ${recorded?.topic}`),
    published,
    applied,
    { place: 'Readers now see', atMs: undefined, isDone: isApplied, details: now === '' ? 'nothing yet' : now },
  ]
}

function step(place: string, at: string | undefined, details: string): Step {
  return { place, atMs: at === undefined ? undefined : Date.parse(at), isDone: at !== undefined, details }
}
