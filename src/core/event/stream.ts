/**
 * Streams: the typed contract between a writer and its readers.
 *
 * A stream is one aggregate type, the topic its events go to, and the types of event it has. Everything about it is
 * checked when it is declared and frozen after that.
 */
import type { EventContext } from '../encoding/codec.ts'
import { defaults } from '../defaults.ts'
import { WaybillError } from '../errors.ts'
import type { EventDefinition, EventKind } from './event.ts'
import { oneOf, refuseUnknown, resolve, wholeBetween } from '../options.ts'

/** How far order is kept at the broker: by aggregate, by lane (fuller requests), or not at all (versions sort it out). */
export type Ordering = 'aggregate' | 'lane' | 'version'

export interface EventType<Kind extends EventKind = EventKind, Input = never, Output = unknown> extends EventDefinition<
  Kind,
  Input,
  Output
> {
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

type Named<Definition> =
  Definition extends EventDefinition<infer Kind, infer Input, infer Output> ? EventType<Kind, Input, Output> : never

export type Stream<Events extends Definitions> = StreamHead & {
  readonly events: { readonly [Name in keyof Events]: Named<Events[Name]> }
} & {
  readonly [Name in keyof Events]: Named<Events[Name]>
}

export interface StreamOptions<Events extends Definitions> {
  /** Where the events go: by convention `<context>.events`. */
  readonly topic: string
  readonly events: Events
  /** The largest encoded event, headers included, that `add` accepts. The default fits every broker's own. @default 1_000_000 */
  readonly maxBytes?: number
  /** @default 'aggregate' */
  readonly ordering?: Ordering
}

/** Declares a stream. Its event types become properties: `videos.VideoPublished`. */
export function stream<const Events extends Definitions>(aggregateType: string, options: StreamOptions<Events>): Stream<Events> {
  checkName(
    'stream',
    aggregateType,
    /^[a-z][a-z0-9_.-]{0,127}$/,
    'lower-case letters, digits, "_", "." and "-", starting with a letter',
  )
  const { topic, events: definitions, maxBytes, ordering } = resolveStreamOptions(`stream ${aggregateType}`, options)
  checkName('topic', topic, /^[A-Za-z][A-Za-z0-9_.~+%-]{2,254}$/, '3 to 255 letters, digits and -_.~+%, starting with a letter')
  const head: StreamHead = Object.freeze({ aggregateType, topic, maxBytes, ordering })
  // Without a prototype: a name that came with a message, such as "constructor", must find nothing.
  const events = Object.create(null) as Record<string, EventType>
  for (const [name, definition] of Object.entries(definitions)) {
    checkName('event type', name, /^[A-Z][A-Za-z0-9]{0,127}$/, 'letters and digits, starting with a capital')
    checkDefinition(aggregateType, name, definition)
    events[name] = Object.freeze({ ...definition, name, stream: head })
  }
  refuseUnreadableOrdering(head, events)
  return Object.freeze({ ...head, events: Object.freeze(events), ...events }) as Stream<Events>
}

/** The data of an event as its handler wants it: decoded, upcast to the current schema version, validated. */
export async function readData<Output>(
  type: EventType<EventKind, never, Output>,
  payload: Uint8Array,
  schemaVersion: number,
  aggregateId: string = '',
): Promise<Output> {
  if (schemaVersion > type.schemaVersion) throw unknownSchema(type, schemaVersion)
  let data: unknown = await type.codec.decode(payload, schemaVersion, contextOf(type, aggregateId, schemaVersion))
  for (let version = schemaVersion; version !== type.schemaVersion; version += 1) {
    const step = type.upcast[version] as ((old: unknown) => unknown) | undefined
    if (step === undefined) throw unknownSchema(type, schemaVersion)
    data = await step(data)
  }
  return await type.codec.validate(data)
}

/** What a codec is told of the event whose data it encodes or decodes. */
export function contextOf(
  { stream: { aggregateType }, name: eventType, schemaVersion: current }: EventType<EventKind, never, unknown>,
  aggregateId: string,
  schemaVersion: number = current,
): EventContext {
  return { aggregateType, aggregateId, eventType, schemaVersion }
}

function resolveStreamOptions<Events extends Definitions>(
  component: string,
  options: StreamOptions<Events>,
): Required<StreamOptions<Events>> {
  refuseUnknown(component, options, ['topic', 'events', 'maxBytes', 'ordering'])
  const { topic, events } = options
  if (events === null || typeof events !== 'object' || Object.keys(events).length === 0) {
    throw new WaybillError(
      'INVALID_OPTION',
      `${component}: it has no events; declare at least one, such as { VideoPublished: state(schema) }.`,
    )
  }
  return resolve<Required<StreamOptions<Events>>>(component, { ...defaults.stream, topic, events }, options, {
    maxBytes: wholeBetween(1, Number.MAX_SAFE_INTEGER),
    ordering: oneOf('aggregate', 'lane', 'version'),
  })
}

function checkDefinition(aggregateType: string, name: string, definition: unknown): void {
  const { kind, codec } = (definition ?? {}) as { readonly kind?: unknown; readonly codec?: unknown }
  if ((kind === 'state' || kind === 'delta' || kind === 'tombstone') && typeof codec === 'object') return
  throw new WaybillError(
    'INVALID_OPTION',
    `stream ${aggregateType}: ${name} has no kind. Wrap its schema: state(schema), delta(schema) or tombstone().`,
  )
}

/** Without an ordering key deltas could overtake each other at the broker, and readers would wait for ever. */
function refuseUnreadableOrdering(head: StreamHead, events: Readonly<Record<string, EventType>>): void {
  const deltas = Object.values(events).filter((event) => event.kind === 'delta')
  if (head.ordering !== 'version' || deltas.length === 0) return
  throw new WaybillError(
    'INVALID_OPTION',
    `stream ${head.aggregateType}: ordering 'version' is for state events only, but ${deltas.map((event) => event.name).join(', ')} is a delta.`,
  )
}

function checkName(what: string, name: string, pattern: RegExp, rule: string): void {
  if (typeof name === 'string' && pattern.test(name)) return
  throw new WaybillError(
    'INVALID_OPTION',
    `${what} ${typeof name === 'string' ? JSON.stringify(name) : typeof name}: use ${rule}.`,
  )
}

function unknownSchema(type: EventType<EventKind, never, unknown>, schemaVersion: number): WaybillError {
  return new WaybillError(
    'UNKNOWN_NAME',
    `${type.name}: schema version ${schemaVersion} cannot be read; this process knows ${type.schemaVersion}. Add an upcaster, or deploy readers before writers.`,
    { details: { eventType: type.name, schemaVersion } },
  )
}
