/**
 * Event types before they belong to a stream: a kind, a payload, and how older payloads become today's.
 *
 *   state      carries the whole state; a reader may skip to the newest
 *   delta      carries a change; a reader applies every one, in order
 *   tombstone  says that the aggregate is gone; a reader remembers the version
 *
 * Payload types are inferred from any Standard Schema, or from a codec for other encodings. A definition that readers
 * could not use (no schema, a chain of upcasters that breaks off) is refused when it is made.
 */
import { jsonCodec, type Codec } from '../encoding/codec.ts'
import { WaybillError } from '../errors.ts'
import { resolve, wholeBetween } from '../options.ts'
import type { StandardSchema } from '../encoding/standard-schema.ts'

export type EventKind = 'state' | 'delta' | 'tombstone'

/** The type of the empty message that stands in for an event that an operator skipped: readers advance and do nothing. */
export const voidEventType = 'waybill.void'

export interface EventOptions {
  /** The version of the payload's shape. Raise it with every incompatible change. @default 1 */
  readonly schemaVersion?: number
  /** From each older schema version that may still arrive, how its data becomes the next version's. Pure functions. */
  readonly upcast?: Readonly<Record<number, (data: never) => unknown>>
}

/** What `state`, `delta` and `tombstone` return: an event type that has no name and stream yet. */
export interface EventDefinition<Kind extends EventKind, Input, Output> {
  readonly kind: Kind
  readonly codec: Codec<Input, Output>
  readonly schemaVersion: number
  readonly upcast: Readonly<Record<number, (data: never) => unknown>>
}

/** What `outbox.add` takes for this event type. */
export type EventInput<Type> = Type extends EventDefinition<EventKind, infer Input, infer _Output> ? Input : never
/** What a handler sees of this event type. */
export type EventData<Type> = Type extends EventDefinition<EventKind, infer _Input, infer Output> ? Output : never

/** An event that carries the aggregate's whole state. */
export function state<Input, Output>(
  schema: StandardSchema<Input, Output> | Codec<Input, Output>,
  options?: EventOptions,
): EventDefinition<'state', Input, Output> {
  return define('state', toCodec(schema), options)
}

/** An event that carries a change, which readers apply exactly once and in order. */
export function delta<Input, Output>(
  schema: StandardSchema<Input, Output> | Codec<Input, Output>,
  options?: EventOptions,
): EventDefinition<'delta', Input, Output> {
  return define('delta', toCodec(schema), options)
}

/** An event that says the aggregate is gone. Without a schema it carries nothing (`null`). */
export function tombstone(): EventDefinition<'tombstone', null | void, null>
export function tombstone<Input, Output>(
  schema: StandardSchema<Input, Output> | Codec<Input, Output>,
  options?: EventOptions,
): EventDefinition<'tombstone', Input, Output>
export function tombstone(schema: unknown = nothing, options?: EventOptions): EventDefinition<'tombstone', never, unknown> {
  return define('tombstone', toCodec(schema as StandardSchema<never, unknown>), options)
}

const nothing: StandardSchema<null | void, null> = {
  '~standard': {
    version: 1,
    vendor: 'waybill',
    validate: (value) =>
      value === null || value === undefined
        ? { value: null }
        : { issues: [{ message: 'this tombstone carries no data; pass nothing' }] },
  },
}

function define<Kind extends EventKind, Input, Output>(
  kind: Kind,
  codec: Codec<Input, Output>,
  options: EventOptions = {},
): EventDefinition<Kind, Input, Output> {
  const { schemaVersion, upcast } = resolve<Required<EventOptions>>(kind, { schemaVersion: 1, upcast: {} }, options, {
    schemaVersion: wholeBetween(1, 2_147_483_647),
    upcast: (steps) => (typeof steps === 'object' && steps !== null) || 'must be an object of functions by schema version',
  })
  checkUpcasters(kind, schemaVersion, upcast)
  return Object.freeze({ kind, codec, schemaVersion, upcast: Object.freeze({ ...upcast }) })
}

/** A chain that breaks off would be found out by a reader, long after the event was written. */
function checkUpcasters(kind: EventKind, schemaVersion: number, upcast: Required<EventOptions>['upcast']): void {
  for (const [from, step] of Object.entries(upcast)) {
    const version = Number(from)
    if (!Number.isSafeInteger(version) || version < 1 || version >= schemaVersion) {
      throw new WaybillError(
        'INVALID_OPTION',
        `${kind}.upcast: it has a step from ${from}, but the schema version is ${schemaVersion}. Raise schemaVersion, or remove the step.`,
      )
    }
    if (typeof step !== 'function')
      throw new WaybillError('INVALID_OPTION', `${kind}.upcast: the step from ${from} must be a function.`)
    if (version + 1 < schemaVersion && upcast[version + 1] === undefined) {
      throw new WaybillError(
        'INVALID_OPTION',
        `${kind}.upcast: it leads from ${from} to ${version + 1}, and no step goes on from there to ${schemaVersion}. Add it.`,
      )
    }
  }
}

function toCodec<Input, Output>(schema: StandardSchema<Input, Output> | Codec<Input, Output>): Codec<Input, Output> {
  if (schema !== null && (typeof schema === 'object' || typeof schema === 'function')) {
    if ('~standard' in schema) return jsonCodec(schema)
    if ('encode' in schema && 'decode' in schema && 'validate' in schema) return schema
  }
  throw new WaybillError(
    'INVALID_OPTION',
    'An event type needs a Standard Schema (Zod, Valibot, ArkType …) or a codec such as protobuf(…) or avro(…).',
  )
}
