/**
 * The name under which a request's events travel: the header `command_id` of every event that a command emits.
 *
 * It follows from the principal and the request id, so whoever knows those finds the events, and nobody else learns them:
 * messages leave the service. It says which events one request caused; it is not needed for their delivery.
 */
import { createHash } from 'node:crypto'
import type { EmittedEvent } from '../command-outbox.ts'
import type { MarkerKey } from '../model/command.sql.ts'

/** The header, and the attribute of the message. */
const commandIdHeader = 'command_id'

/** The id of a request: half of the SHA-256 of principal and request id, which contain no line feed themselves. */
export function commandId({ principal, requestId }: MarkerKey): string {
  return createHash('sha256').update(`${principal}\n${requestId}`).digest('hex').slice(0, 32)
}

/** The events with their request's id among their headers. */
export function withCommandId(events: readonly EmittedEvent[], key: MarkerKey): readonly EmittedEvent[] {
  const ours = { [commandIdHeader]: commandId(key) }
  return events.map((event) => ({ ...event, options: { ...event.options, headers: { ...event.options?.headers, ...ours } } }))
}
