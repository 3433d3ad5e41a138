/**
 * Messages and outcomes as entries of a history, for whoever stands at the broker or beside a client.
 */
import type { Outcome } from '../../command/model/outcome.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import { voidEventType } from '../../core/event/event.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import { aggregateName, type Answer, type Deliver, type Log } from './entry.ts'

type Named = Pick<OutgoingMessage, 'attributes'>

/** A message that the broker stored. For streams that are ordered by versions alone, tell it the streams. */
export function logEntry(
  { topic, orderingKey, attributes }: Omit<OutgoingMessage, 'body'>,
  streams: readonly Pick<AnyStream, 'aggregateType' | 'ordering'>[] = [],
): Log {
  const stream = streams.find(({ aggregateType }) => aggregateType === attributes['aggregate_type'])
  return {
    op: 'log',
    topic,
    ...(orderingKey === undefined ? {} : { key: orderingKey }),
    ...eventOf({ attributes }),
    ...(attributes['event_type'] === voidEventType ? { isVoid: true } : {}),
    ...(stream?.ordering === 'version' ? { isUnordered: true } : {}),
  }
}

/** A message that a consumer was handed. */
export function deliverEntry(consumer: string, message: Named): Deliver {
  return { op: 'deliver', consumer, ...eventOf(message) }
}

/** The event of a message, as histories name it. */
export function eventOf({ attributes }: Named): { readonly event: string; readonly aggregate: string; readonly version: number } {
  return {
    event: attributes['event_id'] ?? '',
    aggregate: aggregateName(attributes['aggregate_type'] ?? '', attributes['aggregate_id'] ?? ''),
    version: Number(attributes['version']),
  }
}

/**
 * How an outcome of `commands.run` is told to a history. ALREADY_COMMITTED is success without a response; where the service
 * asks the client to find out by repeating the request, nobody knows yet.
 */
export function answerOf(outcome: Outcome): Pick<Answer, 'outcome' | 'response' | 'isReplay'> {
  switch (outcome.status) {
    case 'executed':
    case 'replayed':
      return {
        outcome: 'ok',
        ...(outcome.response === undefined ? {} : { response: JSON.stringify(outcome.response) }),
        ...(outcome.status === 'replayed' ? { isReplay: true } : {}),
      }
    case 'rejected':
      return { outcome: 'fail' }
    case 'failed':
      if (outcome.code === 'ALREADY_COMMITTED') return { outcome: 'ok', isReplay: true }
      return { outcome: outcome.code === 'IN_PROGRESS' || outcome.code === 'UNAVAILABLE' ? 'info' : 'fail' }
  }
}
