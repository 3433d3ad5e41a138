/**
 * What a handler gets: the event, the transaction that its effects belong to, and `emit` for events of its own.
 *
 * A handler may do what the database can undo, and nothing else: it runs again after a crash, a deadlock or a failed
 * COMMIT. What the world outside must hear is emitted as an event and sent by somebody else, under the event's id.
 *
 *   throw discard(reason)   never wanted: recorded as a discarded dead letter, acknowledged, not tried again
 *   throw retryAfter(ms)    not now: tried again after this time, counted as an attempt
 *   throw anything else     tried again with growing delays, then a dead letter
 *
 * The handler's writes are rolled back.
 */
import type { EventData, EventInput, EventKind } from '../../core/event/event.ts'
import type { EventType } from '../../core/event/stream.ts'
import type { Version } from '../../core/event/version.ts'
import type { Tx } from '../../postgres/query/database.ts'
import { WaybillError } from '../../core/errors.ts'

/** An event as handlers and projections see it. */
export interface ConsumedEvent<Data = unknown> {
  readonly id: string
  readonly type: string
  readonly kind: EventKind
  readonly aggregateType: string
  readonly aggregateId: string
  readonly version: Version
  readonly occurredAt: Date
  /** The message's attributes: trace context and what else the writer added. */
  readonly attributes: Readonly<Record<string, string>>
  readonly data: Data
}

export interface EmitOptions {
  /** Travel as attributes of the message. */
  readonly headers?: Readonly<Record<string, string>>
  /** Not published before; later events of the aggregate wait for it. Refused while a connector publishes the outbox. */
  readonly notBefore?: Date
}

/**
 * Records an event in the transaction of the handler. Its id follows from the handled event, so however often that is
 * handled, it is emitted once. Nothing is emitted while a projection is rebuilt.
 */
export type EmitEvent = <Type extends EventType<EventKind, never, unknown>>(
  type: Type,
  aggregateId: string,
  ...rest: undefined extends EventInput<Type>
    ? [data?: EventInput<Type>, options?: EmitOptions]
    : [data: EventInput<Type>, options?: EmitOptions]
) => void

/** The part of an outbox that a consumer needs. `createOutbox` makes one. */
export interface EmittingOutbox {
  addMany(tx: Tx, events: readonly EmittedEvent[]): Promise<readonly unknown[]>
}

export interface EmittedEvent {
  readonly type: EventType<EventKind, never, unknown>
  readonly aggregateId: string
  readonly data: unknown
  readonly options: EmitOptions & {
    readonly id: string
    readonly source: { readonly name: string; readonly eventId: string; readonly ordinal: number }
  }
}

export interface HandlerContext<Native = unknown> {
  /** Everything the handler writes goes through it. */
  readonly tx: Tx<Native>
  readonly emit: EmitEvent
  /** Aborts when the handler's time is over or the process gives up its work. */
  readonly signal: AbortSignal
  /** 1 for the first attempt. */
  readonly attempt: number
  /** A newer version of this aggregate was seen before. Never true for a delta. */
  readonly late: boolean
}

export type Handler<Data, Native = unknown> = (
  event: ConsumedEvent<Data>,
  context: HandlerContext<Native>,
) => Promise<void> | void

/** A handler whose event type was checked when it was registered. */
export type AnyHandler = Handler<never, never>

/** The data type that handlers of `Type` see. */
export type HandlerOf<Type extends EventType<EventKind, never, unknown>, Native> = Handler<EventData<Type>, Native>

/** Thrown by a handler that wants an event put aside for good. Made by `discard`. */
export class Discarded extends Error {
  override readonly name: string = 'Discarded'
}

/** Thrown by a handler that names the delay itself. Made by `retryAfter`. */
export class RetryAfter extends Error {
  override readonly name: string = 'RetryAfter'
  readonly delayMs: number

  constructor(delayMs: number, options?: ErrorOptions) {
    super(`The handler asked to be called again in ${delayMs} ms.`, options)
    this.delayMs = delayMs
  }
}

/** Puts the event aside: `throw discard('negative total')`. */
export function discard(reason: string): Discarded {
  return new Discarded(typeof reason === 'string' && reason !== '' ? reason : 'no reason given')
}

/** Asks for another attempt after `delayMs`: `throw retryAfter(30_000)`. */
export function retryAfter(delayMs: number, cause?: unknown): RetryAfter {
  if (!Number.isFinite(delayMs) || delayMs < 0 || delayMs > longestDelayMs)
    throw new WaybillError('INVALID_INPUT', `retryAfter: the delay must be 0 to ${longestDelayMs} ms, got ${delayMs}.`)
  return new RetryAfter(Math.round(delayMs), { cause })
}

const longestDelayMs = 86_400_000

/** By name, not `instanceof`: two copies of this package may be installed side by side. */
export function isDiscarded(error: unknown): error is Discarded {
  return error instanceof Error && error.name === 'Discarded'
}

export function isRetryAfter(error: unknown): error is RetryAfter {
  return error instanceof Error && error.name === 'RetryAfter'
}
