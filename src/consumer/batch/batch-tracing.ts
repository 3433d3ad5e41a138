/**
 * The spans of a consumer: one for the transaction of a batch, linked to the traces of its events, and in each event's own
 * trace one for its handler and one for its projection. So a trace that began with a command ends where its effect committed.
 */
import type { SpanAttributes, Tracing } from '../../core/tracing.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { Item } from '../model/batch-item.ts'
import { writesRow } from '../model/routes.ts'

/** More links than this are cut off by most who record them. */
const mostLinks = 128

export interface BatchSpanDeps {
  readonly consumer: string
  readonly tracing: Tracing
}

/** Runs the work of a batch as a span. */
export async function batchSpan<Result>(
  { consumer, tracing }: BatchSpanDeps,
  items: readonly Item[],
  work: () => Promise<Result>,
): Promise<Result> {
  if (!tracing.isOn) return await work()
  const links = items.filter(hasTrace).slice(0, mostLinks)
  return await tracing.span(
    {
      name: `apply ${consumer}`,
      kind: 'consumer',
      attributes: { 'waybill.consumer': consumer, 'waybill.batch.events': items.length },
      links: links.map(({ message }) => message.attributes),
    },
    work,
  )
}

/** Runs a handler, reports how long it took, and makes it a span of the event's trace; of the batch's, if the event has none. */
export async function observeHandler(settings: ConsumerSettings, item: Item, call: () => Promise<void>): Promise<void> {
  const { name: consumer, tracing, signals, clock } = settings
  const eventType = item.event.type
  const startedAt = clock.monotonicMs()
  let failed = true
  try {
    if (tracing.isOn) {
      const parent = hasTrace(item) ? item.message.attributes : undefined
      const attributes = describe(consumer, item)
      await tracing.span({ name: `handle ${eventType}`, kind: 'consumer', attributes, parent }, call)
    } else await call()
    failed = false
  } finally {
    signals.emit('consumer.handled', { consumer, eventType, durationMs: clock.monotonicMs() - startedAt, failed })
  }
}

/** Records, after the commit, that these items changed their projections or added their facts. */
export function recordProjected(
  { consumer, tracing }: BatchSpanDeps,
  items: readonly Item[],
  times: { readonly startedAtMs: number; readonly endedAtMs: number },
): void {
  for (const item of items) {
    if (!hasTrace(item) || item.route === undefined || !writesRow(item.route)) continue
    const details = { name: `project ${item.event.type}`, kind: 'consumer', attributes: describe(consumer, item) } as const
    tracing.record({ ...details, parent: item.message.attributes }, times)
  }
}

function hasTrace({ message }: Item): boolean {
  return message.attributes['traceparent'] !== undefined
}

function describe(consumer: string, { event, message }: Item): SpanAttributes {
  return {
    'waybill.consumer': consumer,
    'waybill.event.id': event.id,
    'waybill.event.type': event.type,
    'waybill.event.version': event.version.toString(),
    'waybill.aggregate.type': event.aggregateType,
    'waybill.aggregate.id': event.aggregateId,
    'messaging.message.id': message.messageId,
  }
}
