/**
 * How an event's data becomes bytes and data again. The port, and the codec that everybody starts with: JSON.
 *
 * Encoding validates, inside the business transaction: what cannot be read later must fail there, where the change can
 * still be refused. Bytes are stored and sent as they are; nothing between writer and reader re-encodes them.
 */
import { isDeepStrictEqual } from 'node:util'
import { assertWithin, parseWithin, resolveBudget, type Budget, type DataBudget } from './budget.ts'
import { defaults } from '../defaults.ts'
import { errorMessage, isWaybillError, WaybillError } from '../errors.ts'
import { describeIssues, type StandardSchema } from './standard-schema.ts'

/** Which event the data is of, for a codec whose bytes depend on it, such as one that encrypts. The version is not known yet when it is encoded. */
export interface EventContext {
  readonly aggregateType: string
  readonly aggregateId: string
  readonly eventType: string
  readonly schemaVersion: number
}

export interface Codec<Input, Output = Input> {
  /** The MIME type that travels beside the bytes. */
  readonly contentType: string
  /** The MIME type of these very bytes, where it depends on them. @default contentType */
  contentTypeOf?(bytes: Uint8Array): string
  /** How many bytes the data has, where these very bytes only refer to it. Batches of a consumer are bounded by it. @default bytes.length */
  sizeOf?(bytes: Uint8Array): number
  /** Validates and encodes; throws INVALID_INPUT when the data does not fit the schema. */
  encode(data: Input, of?: EventContext): Uint8Array | Promise<Uint8Array>
  /**
   * Decodes what this codec once wrote, without validation: older versions are upcast first. Formats that cannot be read
   * without the schema they were written with need the schema version. May return a promise.
   */
  decode(bytes: Uint8Array, schemaVersion?: number, of?: EventContext): unknown
  /** Validates decoded data of the current schema version; throws INVALID_INPUT. */
  validate(data: unknown): Output | Promise<Output>
}

export const jsonContentType = 'application/json'

const decoder = new TextDecoder('utf-8', { fatal: true })
const encoder = new TextEncoder()

/**
 * JSON, validated by any Standard Schema on both sides.
 *
 * What is stored is the schema's output, and readers validate that again. So a schema must leave its own output as it is;
 * INVALID_OPTION refuses one that does not. Data that the schema left as it was given, and that JSON holds as it is, proves it by
 * itself. Whatever the schema changed (a default, a transform) or JSON writes as something else (a Date, undefined) is read back,
 * each time: what one event shows says nothing of another. So is the first event in any case, for a schema that changes what it is given
 * in place. A number that is not finite is refused: it would become null. What has more values or levels than the budget is TOO_LARGE
 * for writer and reader alike.
 */
export function jsonCodec<Input, Output>(schema: StandardSchema<Input, Output>, options: DataBudget = {}): Codec<Input, Output> {
  const budget = resolveBudget('jsonCodec', options)
  const decode = (bytes: Uint8Array): unknown => decodeJson(bytes, budget)
  const validate = (data: unknown): Output | Promise<Output> => {
    const result = schema['~standard'].validate(data)
    return result instanceof Promise ? result.then(accept) : accept(result)
  }
  let isFirst = true
  const write = (valid: Output, given: Input): Uint8Array | Promise<Uint8Array> => {
    const bytes = encodeJson(valid, budget)
    return isKept(valid, given, 0) && !isFirst ? bytes : prove(bytes)
  }
  const prove = (bytes: Uint8Array): Uint8Array | Promise<Uint8Array> => {
    const conclude = (again: Output): Uint8Array => {
      if (!isSameJson(encodeJson(again), bytes, budget)) throw unstableSchema()
      isFirst = false
      return bytes
    }
    try {
      const again = validate(decode(bytes))
      return again instanceof Promise ? again.then(conclude).catch(refuseOutput) : conclude(again)
    } catch (error) {
      return refuseOutput(error)
    }
  }
  return {
    contentType: jsonContentType,
    encode: (data) => {
      const valid = validate(data)
      return valid instanceof Promise ? valid.then((output) => write(output, data)) : write(valid, data)
    },
    decode,
    validate,
  }
}

/** JSON bytes of a value; INVALID_INPUT for what JSON cannot hold, TOO_LARGE beyond the budget, if one is given. */
export function encodeJson(value: unknown, budget?: Budget): Uint8Array {
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch (cause) {
    throw new WaybillError(
      'INVALID_INPUT',
      'The data cannot be written as JSON (a cycle, a bigint, or too many levels?). Convert bigints to text.',
      { cause },
    )
  }
  if (text === undefined)
    throw new WaybillError('INVALID_INPUT', 'The data is undefined or a function: JSON cannot hold it. Use null or an object.')
  if (budget !== undefined) assertWithin(value, text, budget)
  return encoder.encode(text)
}

/**
 * The value of JSON bytes; TOO_LARGE beyond the budget. `__proto__`, and a `constructor` that has a `prototype`, are dropped: merged
 * carelessly, they would change every object of the process.
 */
export function decodeJson(bytes: Uint8Array, budget: Budget = defaults.budget): unknown {
  const text = decodeText(bytes)
  let value: unknown
  try {
    value = parseWithin(text, budget)
  } catch (cause) {
    if (isWaybillError(cause)) throw cause
    throw new WaybillError('INVALID_INPUT', 'The payload is not JSON, or it has too many levels.', { cause })
  }
  if (suspicious.test(text)) dropPollution(value)
  return value
}

/** The names as they are, or any escaped ASCII character, which could spell them. Most payloads have neither. */
const suspicious = /__proto__|constructor|\\u00/

function decodeText(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes)
  } catch (cause) {
    throw new WaybillError('INVALID_INPUT', 'The payload is not UTF-8 text.', { cause })
  }
}

/** Looks at the names of the parsed value: a reviver would call back for every value, ten times as slow. */
function dropPollution(root: unknown): void {
  const open = [root]
  while (open.length > 0) {
    const value = open.pop()
    if (typeof value !== 'object' || value === null) continue
    if (Array.isArray(value)) {
      for (const each of value) if (typeof each === 'object') open.push(each)
      continue
    }
    const members = value as Record<string, unknown>
    if (Object.hasOwn(members, '__proto__')) delete members['__proto__']
    if (Object.hasOwn(members, 'constructor') && hasPrototype(members['constructor'])) delete members['constructor']
    for (const name in members) if (typeof members[name] === 'object') open.push(members[name])
  }
}

function hasPrototype(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, 'prototype')
}

/** The depth to which data is looked at. Whatever is deeper is read back. */
const deepestPlain = 1_000

/**
 * Whether validated data is what was given, and JSON holds it as it is. It is on the way of every event, so it allocates nothing.
 * Cycles were refused before.
 */
function isKept(value: unknown, given: unknown, depth: number): boolean {
  if (typeof value === 'string' || typeof value === 'boolean' || value === null) return value === given
  if (typeof value === 'number') return Number.isFinite(value) ? value === given : refuseNumber(value)
  if (typeof value !== 'object' || depth > deepestPlain) return false
  if (Array.isArray(value)) return isKeptList(value, given, depth)
  const plain = isPlainObject(value)
  if (!plain && typeof (value as { readonly toJSON?: unknown }).toJSON === 'function') return false
  const source = isPlainObject(given) ? given : nothing
  let kept = plain && source !== nothing
  let more = 0
  for (const _name in source) more += 1
  // To the end, whatever was found: a number may be refused behind it.
  for (const name in value) {
    more -= 1
    if (!isKept((value as Record<string, unknown>)[name], source[name], depth + 1)) kept = false
  }
  return kept && more === 0
}

function isKeptList(list: readonly unknown[], given: unknown, depth: number): boolean {
  const source: readonly unknown[] = Array.isArray(given) ? given : []
  let kept = Array.isArray(given) && source.length === list.length
  for (let i = 0; i < list.length; i += 1) if (!isKept(list[i], source[i], depth + 1)) kept = false
  return kept
}

const nothing: Readonly<Record<string, unknown>> = {}

function isPlainObject(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

function refuseNumber(value: number): never {
  throw new WaybillError(
    'INVALID_INPUT',
    `The data has the number ${value}: JSON would hold null in its place. Use null or text.`,
  )
}

/** Mostly the very same bytes; else names may stand in another order. */
function isSameJson(a: Uint8Array, b: Uint8Array, budget: Budget): boolean {
  return Buffer.compare(a, b) === 0 || isDeepStrictEqual(decodeJson(a, budget), decodeJson(b, budget))
}

function refuseOutput(cause: unknown): never {
  if (isWaybillError(cause, 'INVALID_OPTION') || isWaybillError(cause, 'TOO_LARGE')) throw cause
  throw new WaybillError(
    'INVALID_OPTION',
    `The schema refuses its own output, so nobody could read this event: ${errorMessage(cause)} Use a schema without one-way transforms; convert before the event is added.`,
    { cause },
  )
}

function unstableSchema(): WaybillError {
  return new WaybillError(
    'INVALID_OPTION',
    'The schema changes its own output when it validates it again, so readers would see other data than was written. Use a schema without one-way transforms; convert before the event is added.',
  )
}

function accept<Output>(result: {
  readonly issues?: readonly { readonly message: string }[] | undefined
  readonly value?: Output
}): Output {
  if (result.issues !== undefined)
    throw new WaybillError('INVALID_INPUT', `The data does not fit its schema: ${describeIssues(result.issues)}`)
  return result.value as Output
}
