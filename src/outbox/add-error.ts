/**
 * Turns what Postgres said about a refused `add` into what the caller can do about it.
 */
import { isWaybillError, WaybillError } from '../core/errors.ts'
import { constraintName, isReadOnly, isUniqueViolation, sqlState } from '../postgres/query/sql-state.ts'
import type { EncodedEvent } from './tables/outbox.sql.ts'

/** The state that `add_events` raises for a version out of turn. */
const versionOutOfOrder = 'WB001'
/** The state that `add_event` and `add_events` raise for a date ahead while a connector publishes. */
const dateRefused = 'WB004'
/** The state that they raise for an event whose row a trigger of the user's has dropped. */
const eventDropped = 'WB006'
const undefinedFunction = '42883'
const undefinedSchema = '3F000'

export function explainAddError(error: unknown, events: readonly EncodedEvent[], schema: string): unknown {
  if (isWaybillError(error)) return error
  const state = sqlState(error)
  const what = events.length === 1 ? `outbox.add ${events[0]?.eventType}` : `outbox.addMany of ${events.length} events`
  if (state === versionOutOfOrder) {
    return new WaybillError(
      'VERSION_OUT_OF_ORDER',
      `${what}: ${messageOf(error)} Somebody else changed the aggregate, or a version was left out.`,
      { cause: error },
    )
  }
  if (isReadOnly(error)) {
    return new WaybillError(
      'REFUSED',
      `${what}: this transaction is read only (readOnly: true, set transaction read only, or a server without writes), so nothing was recorded. Add events in one that may write.`,
      { cause: error },
    )
  }
  if (state === eventDropped) {
    const advice = 'Let the trigger return the row as it is; what must not be published is not to be added.'
    return new WaybillError('REFUSED', `${what}: ${messageOf(error)} ${advice}`, { cause: error })
  }
  if (state === dateRefused) return new WaybillError('REFUSED', `${what}: ${messageOf(error)}`, { cause: error })
  if (isUniqueViolation(error) && constraintName(error)?.startsWith('outbox_') === true) {
    return new WaybillError(
      'INVALID_INPUT',
      `${what}: an event with this id or version is in the outbox already. The same fact was recorded before.`,
      { cause: error },
    )
  }
  if (state === undefinedFunction || state === undefinedSchema) {
    return new WaybillError(
      'SCHEMA_MISMATCH',
      `${what}: schema "${schema}" has no outbox. Run "waybill migrate up", or name the schema that has one.`,
      { cause: error },
    )
  }
  return error
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
