/**
 * Commands as values: what a client may ask for, decided once (`plan`) and done inside one transaction (`execute`).
 *
 * `load` reads, `plan` decides with what was loaded, a seeded random source and a clock that stands still, and `execute` does
 * what was planned; it may run again, with the same plan, when an attempt loses a race. A command cannot be run but by
 * `commands.run`: what it is made of is not reachable from outside, so nothing gets around its marker.
 *
 * `CommandOutbox` is the part of an outbox that commands use. The outbox itself is given to `createCommands`; features do not import each
 * other.
 */
import { WaybillError } from '../../core/errors.ts'
import type { EventInput, EventKind } from '../../core/event/event.ts'
import { oneOf, resolve } from '../../core/options.ts'
import type { Random } from '../../core/service/random.ts'
import type { StandardSchema } from '../../core/encoding/standard-schema.ts'
import type { EventType } from '../../core/event/stream.ts'
import type { Queryable, Tx } from '../../postgres/query/database.ts'
import type { Aggregate, LockedAggregate } from './aggregate.ts'

declare const shape: unique symbol

/** What `command` returns: a name to run it by. */
export interface Command<Input = unknown, Response = unknown> {
  readonly name: string
  readonly [shape]?: { readonly input: Input; readonly response: Response }
}

/** Any command, whatever it takes and returns. */
export type AnyCommand = Pick<Command, 'name'>

/** What a child is to do, decided by its `plan`; only its parent's `execute` can run it. */
export interface Planned<Response = unknown> {
  readonly command: string
  readonly [shape]?: { readonly response: Response }
}

/** Who asks for what, the same for all steps of a run. */
export interface RequestContext {
  readonly principal: string
  readonly requestId: string | undefined
  /** The moment of the request; it stands still for the whole run, however often `execute` runs. */
  readonly now: Date
  /** The consistency token that the client showed: it wants nothing older to be read. */
  readonly token: string | undefined
  /** What the caller said about this item of a bulk; `undefined` elsewhere. */
  readonly metadata: unknown
}

export interface PlanContext<Loaded> extends RequestContext {
  /** What `load` returned. */
  readonly loaded: Loaded
  /** The same seed gives the same sequence. Not for secrets. */
  readonly random: Random
  /** Plans another command, to be run by `execute` in the same transaction, under the same marker. */
  readonly child: <Input, Response>(
    command: Command<Input, Response>,
    input: Input,
    options?: { readonly metadata?: unknown },
  ) => Promise<Planned<Response>>
}

export interface ExecuteContext<Input> extends RequestContext {
  readonly input: Input
  /** The locked aggregate. Asking for it is INVALID_OPTION in a command that has none. */
  readonly aggregate: LockedAggregate
  /** 1 for the first attempt. */
  readonly attempt: number
  /** Adds an event to the outbox when `execute` has returned, in the order of the calls, in this transaction. */
  readonly emit: <Type extends EventType<EventKind, never, unknown>>(
    type: Type,
    aggregateId: string,
    ...rest: undefined extends EventInput<Type>
      ? [data?: EventInput<Type>, options?: EmitOptions]
      : [data: EventInput<Type>, options?: EmitOptions]
  ) => void
  /** Runs a child that `plan` planned. */
  readonly run: <Response>(planned: Planned<Response>) => Promise<Response>
}

export interface CommandOptions<Input, Valid, Loaded, Plan, Response> {
  readonly input: StandardSchema<Input, Valid>
  /** The aggregate whose row is locked before `execute`. @default none */
  readonly aggregate?: (input: Valid) => Aggregate
  /** What of the input makes it the same request; for inputs with volatile fields. @default all of it */
  readonly fingerprint?: (input: Input) => unknown
  /** Reads what `plan` needs, in a read-only transaction of its own. @default nothing */
  readonly load?: (db: Queryable, input: Valid, context: RequestContext) => Promise<Loaded>
  /** Decides, once. It gets no transaction and must not have effects. @default the input is the plan */
  readonly plan?: (input: Valid, context: PlanContext<Loaded>) => Plan | Promise<Plan>
  /** Does what was planned. It may run again, so it touches nothing but `tx`. Returns what JSON can hold. */
  readonly execute: (tx: Tx, plan: Plan, context: ExecuteContext<Valid>) => Promise<Response>
  /** Checks the response inside the transaction. @default not checked */
  readonly response?: StandardSchema<unknown, Response>
  /** What the marker keeps: only that it happened, or also the response, for repeats. @default 'marker' */
  readonly store?: 'marker' | 'response'
  /** Keeps rejections too, so that a repeat is rejected again without a look. @default false */
  readonly storeRejections?: boolean
  /** Asks the marker, and not the cache, while the cache could be written by others (no `cacheSecret`). For what moves money. @default false */
  readonly sensitive?: boolean
  /** Hold the aggregate's row, or compare its version at the end and try again. @default 'row' */
  readonly locking?: 'row' | 'version'
  /** Whether it may come without a request id. @default what `createCommands` says */
  readonly requestId?: 'optional' | 'required'
}

/** Declares a command. */
export function command<Input, Valid, Response, Loaded = undefined, Plan = Valid>(
  name: string,
  options: CommandOptions<Input, Valid, Loaded, Plan, Response>,
): Command<Input, Response> {
  if (typeof name !== 'string' || !/^[A-Za-z][A-Za-z0-9._-]{0,127}$/.test(name)) {
    throw new WaybillError(
      'INVALID_OPTION',
      `command ${JSON.stringify(name)}: use letters, digits, ".", "_" and "-", starting with a letter.`,
    )
  }
  const declared: Command<Input, Response> = Object.freeze({ name })
  definitions.set(declared, Object.freeze({ name, ...resolveCommand(name, options) }) as unknown as CommandDefinition)
  return declared
}

/** A command with everything filled in. Only the pipeline sees it. */
export interface CommandDefinition extends Required<Omit<AnyOptions, 'response' | 'aggregate' | 'load' | 'requestId'>> {
  readonly name: string
  readonly aggregate: ((input: unknown) => Aggregate) | undefined
  readonly load: AnyOptions['load'] | undefined
  readonly response: StandardSchema | undefined
  readonly requestId: 'optional' | 'required' | undefined
}

type AnyOptions = CommandOptions<unknown, unknown, unknown, unknown, unknown>

const definitions = new WeakMap<object, CommandDefinition>()

/** What a command is made of; throws UNKNOWN_NAME for anything that `command` did not make. */
export function definitionOf(given: AnyCommand): CommandDefinition {
  const definition = typeof given === 'object' && given !== null ? definitions.get(given) : undefined
  if (definition !== undefined) return definition
  throw new WaybillError('UNKNOWN_NAME', 'This is not a command. Pass what command(name, { … }) returned.')
}

function resolveCommand(name: string, options: object): object {
  const component = `command ${name}`
  const resolved = resolve<Record<keyof AnyOptions, unknown>>(
    component,
    {
      input: undefined,
      aggregate: undefined,
      fingerprint: (input: unknown) => input,
      load: undefined,
      plan: (input: unknown) => input,
      execute: undefined,
      response: undefined,
      store: 'marker',
      storeRejections: false,
      sensitive: false,
      locking: 'row',
      requestId: undefined,
    },
    options,
    {
      store: oneOf('marker', 'response') as (value: unknown) => true | string,
      storeRejections: oneOf(true, false) as (value: unknown) => true | string,
      sensitive: oneOf(true, false) as (value: unknown) => true | string,
      locking: oneOf('row', 'version') as (value: unknown) => true | string,
      requestId: oneOf('optional', 'required') as (value: unknown) => true | string,
    },
  )
  const { input, execute, locking, aggregate } = resolved
  if (typeof input !== 'object' && typeof input !== 'function')
    throw new WaybillError('INVALID_OPTION', `${component}.input: give it a Standard Schema (Zod, Valibot, ArkType …).`)
  if (typeof execute !== 'function')
    throw new WaybillError('INVALID_OPTION', `${component}.execute: it must be a function; without it nothing would happen.`)
  if (locking === 'version' && aggregate === undefined)
    throw new WaybillError('INVALID_OPTION', `${component}.locking: 'version' needs an aggregate, whose version is compared.`)
  return resolved
}

/** The part of an outbox that commands use. The outbox itself is given to `createCommands`; features do not import each other. */
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
