/**
 * The whole journey of a request or an event, across services: the command's marker, the events of its transaction, their
 * publishes, what became of them at each consumer, the versions that projections have, and what consumers emitted because of
 * them.
 *
 * It only reads, by keys where there are keys, and never a payload. What was removed because its time was over is missing, and
 * the trace says so: markers after an hour, events after days. A consumer remembers an event longer than its owner does.
 */
import { WaybillError } from '../../core/errors.ts'
import { parseId } from '../../core/event/id.ts'
import { refuseUnknown } from '../../core/options.ts'
import { first } from '../../postgres/query/database.ts'
import { selectService } from './trace.sql.ts'
import { gatherEvents } from './events.ts'
import type { NamedService, Trace, TracedService, TraceOptions } from './report.ts'
import { findRequest, requestOfEvent, type FoundRequest } from './request.ts'

/** Follows a request or an event through the services; NOT_FOUND if none of them knows it. */
export async function trace(services: readonly TracedService[], options: TraceOptions): Promise<Trace> {
  refuseUnknown('trace', options, ['id', 'principal'])
  const { id, principal } = options
  const named = await Promise.all(services.map(withName))
  const notes: string[] = []
  if (principal === undefined && isUuid(id)) {
    const events = await gatherEvents(named, [parseId(id)], notes)
    if (events.length > 0) return { request: await requestOfEvent(named, events, notes), events, notes }
  }
  const found = await findRequest(named, { requestId: id, principal })
  if (found === undefined) throw unknown(id, named)
  notes.push(...notesOf(found))
  return { request: found.request, events: await gatherEvents(named, found.eventIds, notes), notes }
}

function notesOf({ request, eventIds }: FoundRequest): string[] {
  if (request === undefined) return ['The marker of the request is gone: markers are removed when their time is over.']
  if (eventIds.length > 0) return []
  return [
    request.rejected
      ? 'The command was rejected: it changed nothing and recorded no event.'
      : 'No event of this request is in the outbox: it emitted none, or their time is over.',
  ]
}

async function withName(service: TracedService): Promise<NamedService> {
  const { name, db, schema } = service
  return { ...service, name: name ?? (await first(db, selectService(schema)))?.service ?? schema }
}

function isUuid(id: string): boolean {
  try {
    parseId(id)
    return true
  } catch {
    return false
  }
}

function unknown(id: string, services: readonly NamedService[]): WaybillError {
  const where = services.map(({ name, schema }) => `${name} (schema ${schema})`).join(', ')
  return new WaybillError(
    'NOT_FOUND',
    `Nothing is known of "${id}" in ${where}: it never happened there, or its time is over. Is it an event of another service?`,
  )
}
