/**
 * Records events in the user's own transaction: an event exists if and only if the state change beside it committed.
 *
 * `add` validates, encodes and checks the size first, so that what could not be published or read later fails here, where
 * the change can still be refused. Versions are taken under the aggregate's row lock: per aggregate, version order is
 * commit order. Nothing is sent from here; a relay does that once the transaction has committed.
 */
import { defaults } from '../core/defaults.ts'
import { WaybillError } from '../core/errors.ts'
import { newId, parseId } from '../core/event/id.ts'
import { refuseUnknown } from '../core/options.ts'
import { createTokens, type Tokens } from '../core/event/token.ts'
import { noTracing, type Tracing } from '../core/tracing.ts'
import { parseVersion, type Version } from '../core/event/version.ts'
import type { EventInput, EventKind } from '../core/event/event.ts'
import { contextOf, type EventType } from '../core/event/stream.ts'
import { afterCommit } from '../postgres/transaction/transaction.ts'
import { assertTx, one, rows, type Tx } from '../postgres/query/database.ts'
import { within } from '../postgres/transaction/tx-scope.ts'
import {
  explainAddError,
  assertAggregateId,
  assertContentHash,
  assertContentType,
  assertHeaders,
  assertNotBefore,
  assertSize,
} from './event-limits.ts'
import { hintOf, type LaneHint } from './wake-up/lane-hints.ts'
import {
  addEvent,
  addEvents,
  addFacts,
  outboxTables,
  type AddedEvent,
  type EncodedEvent,
  type EventSource,
  type OutboxTables,
} from './tables/outbox.sql.ts'

export interface OutboxOptions {
  /** The schema that holds the outbox. @default 'waybill' */
  readonly schema?: string
  /** Makes the consistency tokens that `add` returns. @default unsigned tokens */
  readonly tokens?: Tokens
  /** Headers for every event. */
  readonly headers?: () => Readonly<Record<string, string>>
  /** Gives every event the trace of the moment, such as `openTelemetryTracing()`. @default none */
  readonly tracing?: Tracing
}

export interface AddOptions {
  /** The version this event must get. Refused unless it is the next one. @default the next version is taken */
  readonly version?: Version | string | number
  /** Made from a business key (`businessKeyId`) it makes the same fact the same event. @default a new time-ordered id */
  readonly id?: string
  /** Travel as attributes of the message. */
  readonly headers?: Readonly<Record<string, string>>
  /** Not published before; later events of the aggregate wait for it. Refused while a connector publishes the outbox. */
  readonly notBefore?: Date
  /** Set for events that a consumer emits: the same source emits the same event once only. */
  readonly source?: EventSource
  /** Values for the columns that you added to the outbox table. Pass all of them, or none. */
  readonly columns?: Readonly<Record<string, unknown>>
}

/** What was recorded. It is a promise only once the transaction has committed. */
export interface Added {
  readonly id: string
  readonly version: Version
  /** Readers that hold it see this change or a later one. */
  readonly token: string
  /** `false` if the same source had emitted this event before; then nothing was recorded. */
  readonly added: boolean
  /** Of a fact: the same source was recorded before, with another content. */
  readonly conflict: boolean
}

/** One event for `addMany`. Made by `event(type, id, data, options)`, which checks the data's type. */
export interface NewEvent {
  readonly type: EventType<EventKind, never, unknown>
  readonly aggregateId: string
  readonly data: unknown
  readonly options?: AddOptions
}

export interface Outbox {
  readonly tables: OutboxTables
  /** Records one event in `tx`. */
  add<Type extends EventType<EventKind, never, unknown>>(
    tx: Tx,
    type: Type,
    aggregateId: string,
    ...rest: undefined extends EventInput<Type>
      ? [data?: EventInput<Type>, options?: AddOptions]
      : [data: EventInput<Type>, options?: AddOptions]
  ): Promise<Added>
  /** Records many events in `tx` with one statement; the results are in the order given. */
  addMany(tx: Tx, events: readonly NewEvent[]): Promise<readonly Added[]>
  /** Calls `listener` after each commit that added events, where `transaction()` ran it: `hint` says where. Returns how to end it. */
  onCommitted(listener: (hint: LaneHint) => void): () => void
}

const addOptionNames = ['version', 'id', 'headers', 'notBefore', 'source', 'columns']

/** Pairs an event type with data of its type, for `addMany`. */
export function event<Type extends EventType<EventKind, never, unknown>>(
  type: Type,
  aggregateId: string,
  data: EventInput<Type>,
  options?: AddOptions,
): NewEvent {
  return { type, aggregateId, data, ...(options === undefined ? {} : { options }) }
}

export function createOutbox(options: OutboxOptions = {}): Outbox {
  refuseUnknown('outbox', options, ['schema', 'tokens', 'headers', 'tracing'])
  const { schema = defaults.schema, tokens = createTokens(), headers = () => ({}), tracing = noTracing } = options
  const tables = outboxTables(schema)
  const listeners = new Set<(hint: LaneHint) => void>()

  const addMany = async (tx: Tx, events: readonly NewEvent[]): Promise<readonly Added[]> => {
    assertTx(tx, 'outbox.add')
    if (events.length === 0) return []
    return await within(tx, nameOf(events), () => addAll(tx, events))
  }
  const addAll = async (tx: Tx, events: readonly NewEvent[]): Promise<readonly Added[]> => {
    const encoded = await Promise.all(events.map((each) => encode(each, { ...tracing.headers(), ...headers() })))
    const found = await record(tx, tables, encoded).catch((error: unknown) => {
      throw explainAddError(error, encoded, schema)
    })
    if (listeners.size > 0) {
      const hint = hintOf(encoded)
      afterCommit(tx, () => listeners.forEach((listener) => listener(hint)))
    }
    return encoded.map((each) => added(each, found.get(each.id), tokens))
  }
  return {
    tables,
    addMany,
    add: async (tx, type, aggregateId, ...[data, addOptions]) => {
      const [result] = await addMany(tx, [
        { type, aggregateId, data, ...(addOptions === undefined ? {} : { options: addOptions }) },
      ])
      return result as Added
    },
    onCommitted: (listener) => {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
  }
}

/** As errors name the call. */
function nameOf([first, ...rest]: readonly NewEvent[]): string {
  const more = rest.length > 0 ? ` and ${rest.length} more` : ''
  return `outbox.add(${String(first?.type?.name)}${more})`
}

type Recorded = ReadonlyMap<string, Omit<AddedEvent, 'id'>>

async function record(tx: Tx, tables: OutboxTables, events: readonly EncodedEvent[]): Promise<Recorded> {
  const [only] = events
  if (events.length === 1 && only !== undefined && only.source === undefined && only.columns === undefined) {
    return new Map([[only.id, { ...(await one(tx, addEvent(tables, only))), added: true }]])
  }
  const areFacts = events.map(({ source }) => source?.contentHash !== undefined)
  if (areFacts.includes(true) && areFacts.includes(false))
    throw new WaybillError('INVALID_OPTION', 'outbox.addMany: add facts (a source with a contentHash) and other events apart.')
  const add = areFacts[0] === true ? addFacts : addEvents
  return new Map((await rows(tx, add(tables, events))).map((row) => [row.id, row]))
}

async function encode(
  { type, aggregateId, data, options = {} }: NewEvent,
  common: Readonly<Record<string, string>>,
): Promise<EncodedEvent> {
  assertEventType(type)
  refuseUnknown(`outbox.add ${type.name}`, options, addOptionNames)
  assertAggregateId(aggregateId, type.name)
  assertNotBefore(options.notBefore, type.name)
  assertContentHash(options.source?.contentHash, type.name)
  const payload = await type.codec.encode(data as never, contextOf(type, aggregateId))
  const headers = { ...common, ...options.headers }
  assertHeaders(headers, type.name)
  const encoded: EncodedEvent = {
    id: options.id === undefined ? newId() : parseId(options.id, `outbox.add ${type.name}: id`),
    topic: type.stream.topic,
    aggregateType: type.stream.aggregateType,
    aggregateId,
    eventType: type.name,
    payload,
    schemaVersion: type.schemaVersion,
    contentType: type.codec.contentTypeOf?.(payload) ?? type.codec.contentType,
    headers,
    version: options.version === undefined ? undefined : parseVersion(options.version, `outbox.add ${type.name}: version`),
    notBefore: options.notBefore,
    source: options.source,
    columns: options.columns,
  }
  assertContentType(encoded.contentType, type.name)
  assertSize(encoded, type.stream.maxBytes)
  return encoded
}

function assertEventType(type: unknown): asserts type is EventType<EventKind, never, unknown> {
  const { codec, stream, name } = (type ?? {}) as Partial<EventType>
  if (codec !== undefined && stream !== undefined && name !== undefined) return
  throw new WaybillError(
    'UNKNOWN_NAME',
    'outbox.add: the second argument is not an event type. Pass a property of a stream, such as videos.VideoPublished.',
  )
}

function added(encoded: EncodedEvent, row: Omit<AddedEvent, 'id'> | undefined, tokens: Tokens): Added {
  if (row === undefined) throw new WaybillError('INTERNAL', `The database did not return event ${encoded.id}.`)
  const version = row.version === null ? 0n : BigInt(row.version)
  const token = row.added
    ? tokens.encode({ aggregateType: encoded.aggregateType, aggregateId: encoded.aggregateId, version })
    : ''
  return { id: encoded.id, version, token, added: row.added, conflict: row.conflict ?? false }
}
