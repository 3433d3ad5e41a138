/**
 * Streams and their event types: the typed contract between a writer and its readers.
 *
 * A stream is one aggregate type, the topic its events go to, and the types of event it has. Each event type has a kind:
 *
 *   state      carries the whole state; a reader may skip to the newest
 *   delta      carries a change; a reader applies every one, in order
 *   tombstone  says that the aggregate is gone; a reader remembers the version
 *
 * Payload types are inferred from any Standard Schema, or from a codec for other encodings.
 */
import { jsonCodec, type Codec } from './codec.ts'
import { WaybillError } from './errors.ts'
import { refuseUnknown } from './options.ts'
import type { StandardSchema } from './standard-schema.ts'

export type EventKind = 'state' | 'delta' | 'tombstone'

/** How far order is kept at the broker: by aggregate, by lane (fuller requests), or not at all (versions sort it out). */
export type Ordering = 'aggregate' | 'lane' | 'version'

export interface EventOptions {
  /** The version of the payload's shape. Raise it with every incompatible change. @default 1 */
  readonly schemaVersion?: number
  /** From each older schema version, how its data becomes the next version's. Pure functions. */
  readonly upcast?: Readonly<Record<number, (data: never) => unknown>>
}

/** What `state`, `delta` and `tombstone` return: an event type that has no name and stream yet. */
export interface EventDefinition<Kind extends EventKind, Input, Output> {
  readonly kind: Kind
  readonly codec: Codec<Input, Output>
  readonly schemaVersion: number
  readonly upcast: Readonly<Record<number, (data: never) => unknown>>
}

export interface EventType<Kind extends EventKind = EventKind, Input = never, Output = unknown> extends EventDefinition<Kind, Input, Output> {
  readonly name: string
  readonly stream: StreamHead
}

/** A stream without its event types. */
export interface StreamHead {
  readonly aggregateType: string
  readonly topic: string
  readonly maxBytes: number
  readonly ordering: Ordering
}

/** A stream of unknown event types: what functions that take any stream accept. */
export interface AnyStream extends StreamHead {
  readonly events: Readonly<Record<string, EventType<EventKind, never, unknown>>>
}

type Definitions = Readonly<Record<string, EventDefinition<EventKind, never, unknown>>>

type Named<Definition> = Definition extends EventDefinition<infer Kind, infer Input, infer Output> ? EventType<Kind, Input, Output> : never

export type Stream<Events extends Definitions> = StreamHead & { readonly events: { readonly [Name in keyof Events]: Named<Events[Name]> } } & {
  readonly [Name in keyof Events]: Named<Events[Name]>
}

/** What `outbox.add` takes for this event type. */
export type EventInput<Type> = Type extends EventDefinition<EventKind, infer Input, infer _Output> ? Input : never
/** What a handler sees of this event type. */
export type EventData<Type> = Type extends EventDefinition<EventKind, infer _Input, infer Output> ? Output : never

export interface StreamOptions<Events extends Definitions> {
  /** Where the events go: by convention `<context>.events`. */
  readonly topic: string
  readonly events: Events
  /** The largest encoded event, headers included, that `add` accepts. @default 1_000_000 */
  readonly maxBytes?: number
  /** @default 'aggregate' */
  readonly ordering?: Ordering
}

/** The largest encoded event by default: fits every broker's own default. */
export const defaultMaxBytes = 1_000_000

/** An event that carries the aggregate's whole state. */
export function state<Input, Output>(schema: StandardSchema<Input, Output> | Codec<Input, Output>, options?: EventOptions): EventDefinition<'state', Input, Output> {
  return define('state', toCodec(schema), options)
}

/** An event that carries a change, which readers apply exactly once and in order. */
export function delta<Input, Output>(schema: StandardSchema<Input, Output> | Codec<Input, Output>, options?: EventOptions): EventDefinition<'delta', Input, Output> {
  return define('delta', toCodec(schema), options)
}

/** An event that says the aggregate is gone. Without a schema it carries nothing (`null`). */
export function tombstone(): EventDefinition<'tombstone', null | void, null>
export function tombstone<Input, Output>(schema: StandardSchema<Input, Output> | Codec<Input, Output>, options?: EventOptions): EventDefinition<'tombstone', Input, Output>
export function tombstone(schema: unknown = nothing, options?: EventOptions): EventDefinition<'tombstone', never, unknown> {
  return define('tombstone', toCodec(schema as StandardSchema<never, unknown>), options)
}

/** Declares a stream. Its event types become properties: `videos.VideoPublished`. */
export function stream<const Events extends Definitions>(aggregateType: string, options: StreamOptions<Events>): Stream<Events> {
  refuseUnknown(`stream ${aggregateType}`, options, ['topic', 'events', 'maxBytes', 'ordering'])
  checkName('stream', aggregateType, /^[a-z][a-z0-9_.-]{0,127}$/, 'lower-case letters, digits, "_", "." and "-", starting with a letter')
  checkName('topic', options.topic, /^[A-Za-z][A-Za-z0-9_.~+%-]{2,254}$/, '3 to 255 letters, digits and -_.~+%, starting with a letter')
  const { topic, maxBytes = defaultMaxBytes, ordering = 'aggregate' } = options
  if (!Number.isSafeInteger(maxBytes) || maxBytes < 1) throw new WaybillError('INVALID_OPTION', `stream ${aggregateType}: maxBytes must be a whole number, at least 1.`)
  const head: StreamHead = Object.freeze({ aggregateType, topic, maxBytes, ordering })
  const events: Record<string, EventType> = {}
  for (const [name, definition] of Object.entries(options.events)) {
    checkName('event type', name, /^[A-Z][A-Za-z0-9]{0,127}$/, 'letters and digits, starting with a capital')
    events[name] = Object.freeze({ ...definition, name, stream: head }) as EventType
  }
  if (Object.keys(events).length === 0) throw new WaybillError('INVALID_OPTION', `stream ${aggregateType}: it has no events; declare at least one.`)
  refuseUnreadableOrdering(head, events)
  return Object.freeze({ ...head, events: Object.freeze(events), ...events }) as Stream<Events>
}

/** The data of an event as its handler wants it: decoded, upcast to the current schema version, validated. */
export async function readData<Output>(type: EventType<EventKind, never, Output>, payload: Uint8Array, schemaVersion: number): Promise<Output> {
  let data: unknown = type.codec.decode(payload)
  for (let version = schemaVersion; version !== type.schemaVersion; version += 1) {
    const step = type.upcast[version] as ((old: unknown) => unknown) | undefined
    if (step === undefined || version > type.schemaVersion) throw unknownSchema(type, schemaVersion)
    data = step(data)
  }
  return await type.codec.validate(data)
}

const nothing: StandardSchema<null | void, null> = {
  '~standard': {
    version: 1,
    vendor: 'waybill',
    validate: (value) => (value === null || value === undefined ? { value: null } : { issues: [{ message: 'this tombstone carries no data; pass nothing' }] }),
  },
}

function define<Kind extends EventKind, Input, Output>(kind: Kind, codec: Codec<Input, Output>, options: EventOptions = {}): EventDefinition<Kind, Input, Output> {
  refuseUnknown(kind, options, ['schemaVersion', 'upcast'])
  const { schemaVersion = 1, upcast = {} } = options
  if (!Number.isSafeInteger(schemaVersion) || schemaVersion < 1) throw new WaybillError('INVALID_OPTION', `${kind}: schemaVersion must be a whole number, at least 1.`)
  return { kind, codec, schemaVersion, upcast }
}

function toCodec<Input, Output>(schema: StandardSchema<Input, Output> | Codec<Input, Output>): Codec<Input, Output> {
  if (schema !== null && (typeof schema === 'object' || typeof schema === 'function')) {
    if ('~standard' in schema) return jsonCodec(schema)
    if ('encode' in schema && 'decode' in schema && 'validate' in schema) return schema
  }
  throw new WaybillError('INVALID_OPTION', 'An event type needs a Standard Schema (Zod, Valibot, ArkType …) or a codec such as protobuf(…) or avro(…).')
}

/** Without an ordering key deltas could overtake each other at the broker, and readers would wait for ever. */
function refuseUnreadableOrdering(head: StreamHead, events: Readonly<Record<string, EventType>>): void {
  const deltas = Object.values(events).filter((event) => event.kind === 'delta')
  if (head.ordering !== 'version' || deltas.length === 0) return
  throw new WaybillError('INVALID_OPTION', `stream ${head.aggregateType}: ordering 'version' is for state events only, but ${deltas.map((event) => event.name).join(', ')} is a delta.`)
}

function checkName(what: string, name: string, pattern: RegExp, rule: string): void {
  if (typeof name !== 'string' || !pattern.test(name)) throw new WaybillError('INVALID_OPTION', `${what} ${JSON.stringify(name)}: use ${rule}.`)
}

function unknownSchema(type: EventType<EventKind, never, unknown>, schemaVersion: number): WaybillError {
  return new WaybillError(
    'UNKNOWN_NAME',
    `${type.name}: schema version ${schemaVersion} cannot be read; this process knows ${type.schemaVersion}. Add an upcaster, or deploy readers before writers.`,
    { details: { eventType: type.name, schemaVersion } },
  )
}
