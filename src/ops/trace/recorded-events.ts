/**
 * Events of released schema versions, kept as they were written, and read again by today's code: the compatibility check for
 * every encoding, and the only one for JSON, whose schemas are code.
 *
 * A recorded event is what the outbox would have stored. It is plain JSON, so a file of them lies beside the tests.
 */
import { redactedMessage } from '../../core/redact.ts'
import type { EventKind } from '../../core/event/event.ts'
import { contextOf, readData, type AnyStream, type EventType } from '../../core/event/stream.ts'

export interface RecordedEvent {
  readonly aggregateType: string
  readonly eventType: string
  readonly schemaVersion: number
  /** The encoded data, as base64. */
  readonly payload: string
}

/** An event as it is written today, to be kept. */
export async function recordEvent<Input>(type: EventType<EventKind, Input, unknown>, data: Input): Promise<RecordedEvent> {
  const bytes = await type.codec.encode(data, contextOf(type, ''))
  return {
    aggregateType: type.stream.aggregateType,
    eventType: type.name,
    schemaVersion: type.schemaVersion,
    payload: Buffer.from(bytes).toString('base64'),
  }
}

/** Why recorded events can no longer be read, one sentence each; empty if all can. */
export async function recordedProblems(
  streams: readonly AnyStream[],
  events: readonly RecordedEvent[],
): Promise<readonly string[]> {
  const problems: string[] = []
  for (const { aggregateType, eventType, schemaVersion, payload } of events) {
    const type = streams.find((each) => each.aggregateType === aggregateType)?.events[eventType]
    const what = `${aggregateType}.${eventType}, schema version ${schemaVersion}`
    if (type === undefined) {
      problems.push(`${what}: this event type is not declared any more, but events of it may be stored or on their way`)
      continue
    }
    try {
      await readData(type, Buffer.from(payload, 'base64'), schemaVersion)
    } catch (error) {
      problems.push(`${what}: ${redactedMessage(error)}`)
    }
  }
  return problems
}
