/**
 * Finds a request by its id, and its events by the id that they carry; or the request that an event names.
 *
 * A request's marker says when its transaction began, and an event says when it was recorded: each is looked for in the time
 * around the other, a short one first. Only a request id without its principal, or without a marker, has to be looked for in
 * a whole table, and that may not take long.
 */
import { commandId } from '../../command/model/request-ids.ts'
import { commandTables } from '../../command/model/command.sql.ts'
import { WaybillError } from '../../core/errors.ts'
import { outboxTables } from '../../outbox/tables/outbox.sql.ts'
import { first, rows } from '../../postgres/query/database.ts'
import type { Statement } from '../../postgres/query/sql.ts'
import { shownGroupRole } from '../../postgres/schema/roles.ts'
import { isForbidden, isUnavailable } from '../../postgres/query/sql-state.ts'
import { transaction, transactionOptions } from '../../postgres/transaction/transaction.ts'
import {
  scanEventsOfCommand,
  scanTracedMarkers,
  selectEventsOfCommand,
  selectMarkerOfEvent,
  selectTracedEvents,
  selectTracedMarker,
  type TracedMarkerRow,
} from './trace.sql.ts'
import type { NamedService, TracedEvent, TracedRequest } from './report.ts'

export interface FoundRequest {
  /** `undefined` if its marker is gone and only its events are left. */
  readonly request: TracedRequest | undefined
  readonly eventIds: readonly string[]
}

/** A transaction from its marker to its events: nearly always the first, hardly ever longer than the second. */
const windowsMs = [10_000, 600_000]
const scanTimeoutMs = 15_000

interface Wanted {
  readonly requestId: string
  readonly principal: string | undefined
}

/** The request and its events in the service that knows it; `undefined` if none does. */
export async function findRequest(services: readonly NamedService[], wanted: Wanted): Promise<FoundRequest | undefined> {
  const markers = (await Promise.all(services.map((service) => findMarkers(service, wanted)))).flat()
  const principals = new Set(markers.map(({ row }) => row.principal))
  if (principals.size > 1) {
    throw new WaybillError(
      'INVALID_OPTION',
      `Several principals used the request id "${wanted.requestId}": ${[...principals].join(', ')}. Name the one you mean.`,
    )
  }
  const [found] = markers
  if (found !== undefined)
    return { request: toRequest(found.service, found.row), eventIds: await eventsOf(found.service, found.row) }
  if (wanted.principal === undefined) return undefined
  const id = commandId({ principal: wanted.principal, requestId: wanted.requestId })
  for (const service of services) {
    const left = await scan(service, scanEventsOfCommand(outboxTables(service.schema), id), 'Name an event id instead.')
    if (left.length > 0) return { request: undefined, eventIds: left.map((row) => row.id) }
  }
  return undefined
}

/** The request of the first event that names one; `undefined` if none does, its marker is gone, or this role may not see it: that is noted. */
export async function requestOfEvent(
  services: readonly NamedService[],
  events: readonly TracedEvent[],
  notes: string[],
): Promise<TracedRequest | undefined> {
  const [event] = events
  const service = services.find(({ name }) => name === event?.recorded?.service)
  if (event === undefined || service === undefined) return undefined
  const row = await first(service.db, selectTracedEvents(outboxTables(service.schema), [event.eventId]))
  if (row === undefined || row.command_id === null) return undefined
  for (const windowMs of windowsMs) {
    const of = { commandId: row.command_id, occurredAt: row.occurred_at }
    const marker = await first(service.db, selectMarkerOfEvent(commandTables(service.schema), of, windowMs)).catch(ifForbidden)
    if (marker === 'forbidden') {
      notes.push(`Who asked for it is shown to ${membersOf(service)}.`)
      return undefined
    }
    if (marker !== undefined) return toRequest(service, marker)
  }
  return undefined
}

async function findMarkers(
  service: NamedService,
  { requestId, principal }: Wanted,
): Promise<readonly { readonly service: NamedService; readonly row: TracedMarkerRow }[]> {
  const tables = commandTables(service.schema)
  const found =
    principal === undefined
      ? await scan(service, scanTracedMarkers(tables, requestId, 10), 'Name the principal: that is looked up by key.')
      : await rows(service.db, selectTracedMarker(tables, { principal, requestId }))
  return found.map((row) => ({ service, row }))
}

async function eventsOf({ db, schema }: NamedService, row: TracedMarkerRow): Promise<readonly string[]> {
  const request = { commandId: commandId({ principal: row.principal, requestId: row.request_id }), since: row.created_at }
  for (const windowMs of windowsMs) {
    const found = await rows(db, selectEventsOfCommand(outboxTables(schema), request, windowMs))
    if (found.length > 0) return found.map(({ id }) => id)
  }
  return []
}

const scanning = transactionOptions({ statementTimeoutMs: scanTimeoutMs, readOnly: true })

/** Reads a whole table, but not for long: this may be somebody's production. */
async function scan<Row>({ db, name, schema }: NamedService, statement: Statement<Row>, advice: string): Promise<readonly Row[]> {
  try {
    return await transaction(db, (tx) => rows(tx, statement), scanning)
  } catch (error) {
    if (isForbidden(error))
      throw new WaybillError('FORBIDDEN', `Who asked for what in ${name} is shown to ${membersOf({ schema })}. ${advice}`, {
        cause: error,
      })
    if (!isUnavailable(error)) throw error
    throw new WaybillError('TIMEOUT', `Looking through all of ${name} took too long. ${advice}`, { cause: error })
  }
}

function ifForbidden(error: unknown): 'forbidden' {
  if (!isForbidden(error)) throw error
  return 'forbidden'
}

function membersOf({ schema }: { readonly schema: string }): string {
  return `members of the database role ${shownGroupRole({ schema }, 'payloads')}`
}

function toRequest({ name }: NamedService, row: TracedMarkerRow): TracedRequest {
  return {
    service: name,
    principal: row.principal,
    requestId: row.request_id,
    command: row.command,
    rejected: row.rejected,
    at: row.created_at,
  }
}
