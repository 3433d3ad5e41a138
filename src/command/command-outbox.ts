/**
 * The part of an outbox that commands use. The outbox itself is given to `createCommands`; features do not import each other.
 */
import type { EventKind } from '../core/event/event.ts'
import type { EventType } from '../core/event/stream.ts'
import type { Tx } from '../postgres/query/database.ts'

export interface EmitOptions {
  /** Made from a business key it makes the same fact the same event. @default a new time-ordered id */
  readonly id?: string
  /** Travel as attributes of the message. */
  readonly headers?: Readonly<Record<string, string>>
  /** Not published before; later events of the aggregate wait for it. Refused while a connector publishes the outbox. */
  readonly notBefore?: Date
  /** Values for the columns that you added to the outbox table. */
  readonly columns?: Readonly<Record<string, unknown>>
}

/** An event that `execute` emitted. */
export interface EmittedEvent {
  readonly type: EventType<EventKind, never, unknown>
  readonly aggregateId: string
  readonly data: unknown
  readonly options?: EmitOptions
}

export interface CommandOutbox {
  /** Records events in `tx`; the results are in the order given. */
  addMany(tx: Tx, events: readonly EmittedEvent[]): Promise<readonly { readonly version: bigint; readonly token: string }[]>
}
