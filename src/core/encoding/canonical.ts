/**
 * Values as text, or a refusal that names the value and says what to do. Nothing is changed or left out in silence.
 *
 * `canonicalText` is for comparing: two values have one text only if they hold the same, but for the order of keys in plain
 * objects. It is JSON with sorted keys; what JSON has no word for is written as a word that JSON does not have:
 *
 *   undefined U     1n 1n     NaN, Infinity, -0 as they are     Date D<ms>     Map M[[key,value],…]     Set S[…]
 *   ArrayBuffer and views B<type>"base64"     URLSearchParams Q[[name,text],…]     FormData F[…]     toJSON J(…)
 *
 * `jsonText` is for carrying: the JSON of a value that JSON can hold.
 *
 * Refused are values whose content cannot be seen (files, streams, functions, instances without toJSON), cycles, and what is too
 * deep or too large.
 */
import { errorMessage, isWaybillError, WaybillError } from '../errors.ts'

export interface TextOptions {
  /** What the value is, as the refusal calls it: `input`. */
  readonly what: string
  /** How to mend a refusal, as a sentence. */
  readonly remedy?: string
  /** @default 67_108_864 */
  readonly maxBytes?: number
}

export interface JsonOptions extends TextOptions {
  /** A bigint as its decimal digits, or refused. @default 'refused' */
  readonly bigint?: 'text' | 'refused'
}

const defaultMaxBytes = 67_108_864
/** A cycle ends here too. */
const deepest = 1_000

/** The canonical text of a value; INVALID_INPUT if it has none. */
export function canonicalText(value: unknown, options: TextOptions): string {
  const walk: Walk = { options, path: [], maxLength: options.maxBytes ?? defaultMaxBytes }
  const text = tryText(walk, () => write(value, walk))
  return assertSize(text, walk)
}

/** The JSON of a value, `undefined` for `undefined`; INVALID_INPUT for what JSON cannot hold. */
export function jsonText(value: unknown, options: JsonOptions): string | undefined {
  const walk: Walk = { options, path: [], maxLength: options.maxBytes ?? defaultMaxBytes }
  const isText = options.bigint === 'text'
  const text = tryText(walk, () => {
    assertCarried(value, walk, isText)
    return JSON.stringify(value, isText ? bigintAsText : undefined)
  })
  return text === undefined ? undefined : assertSize(text, walk)
}

interface Walk {
  readonly options: TextOptions
  readonly path: (string | number)[]
  readonly maxLength: number
}

function tryText<Text>(walk: Walk, work: () => Text): Text {
  try {
    return work()
  } catch (cause) {
    if (isWaybillError(cause)) throw cause
    throw refusal(walk, `cannot be read: ${errorMessage(cause)}`, cause)
  }
}

function assertSize(text: string, walk: Walk): string {
  if (text.length * 3 <= walk.maxLength || Buffer.byteLength(text) <= walk.maxLength) return text
  throw tooLarge(walk)
}

function write(value: unknown, walk: Walk): string {
  switch (typeof value) {
    case 'string':
      return quoted(value)
    case 'number':
      return value === 0 && Object.is(value, -0) ? '-0' : String(value)
    case 'boolean':
      return value ? 'true' : 'false'
    case 'undefined':
      return 'U'
    case 'bigint':
      return `${value}n`
    case 'object':
      return value === null ? 'null' : writeObject(value, walk)
    default:
      throw refusal(walk, `is a ${typeof value}, which cannot be compared`)
  }
}

function writeObject(value: object, walk: Walk): string {
  if (walk.path.length >= deepest) throw tooDeep(walk)
  const text = isPlainObject(value) && !hasToJson(value) ? writePlain(value, walk) : writeOther(value, walk)
  if (text.length > walk.maxLength) throw tooLarge(walk)
  return text
}

function writePlain(value: Readonly<Record<string, unknown>>, walk: Walk): string {
  const keys = Object.keys(value)
  if (Object.getOwnPropertySymbols(value).length > 0) throw refusal(walk, 'has a symbol as a key, which cannot be compared')
  if (keys.length > 1) keys.sort()
  let text = '{'
  for (const key of keys) {
    walk.path.push(key)
    text += `${text === '{' ? '' : ','}${quoted(key)}:${write(value[key], walk)}`
    walk.path.pop()
  }
  return `${text}}`
}

function writeList(list: Iterable<unknown>, walk: Walk): string {
  let text = '['
  let index = 0
  for (const each of list) {
    walk.path.push(index)
    text += index === 0 ? write(each, walk) : `,${write(each, walk)}`
    walk.path.pop()
    index += 1
  }
  return `${text}]`
}

function writeOther(value: object, walk: Walk): string {
  if (Array.isArray(value)) {
    if (isPlainList(value)) return writeList(value, walk)
    throw refusal(walk, 'is a list with more than its elements, which cannot be compared')
  }
  if (value instanceof Date) return `D${value.getTime()}`
  if (value instanceof Map) return `M${writeList(value, walk)}`
  if (value instanceof Set) return `S${writeList(value, walk)}`
  if (ArrayBuffer.isView(value)) return `B${tagOf(value)}"${base64(value.buffer, value.byteOffset, value.byteLength)}"`
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return `B${tagOf(value)}"${base64(value)}"`
  if (value instanceof URLSearchParams) return `Q${writeList(value, walk)}`
  if (value instanceof FormData) return `F${writeList(value as Iterable<unknown>, walk)}`
  if (!hasToJson(value)) throw refusal(walk, `is ${named(value)}, whose content cannot be seen`)
  walk.path.push('toJSON()')
  const text = write(value.toJSON(), walk)
  walk.path.pop()
  return `J(${text})`
}

/** What JSON would change or leave out is refused, but for names that are undefined and gaps in lists. */
function assertCarried(value: unknown, walk: Walk, isBigintText: boolean): void {
  if (typeof value === 'number' && !Number.isFinite(value)) throw refusal(walk, `is ${value}, which JSON cannot hold`)
  if (typeof value === 'bigint' && !isBigintText && !hasToJson(value))
    throw refusal(walk, 'is a bigint, which JSON cannot hold: convert it to text')
  if (typeof value === 'function' || typeof value === 'symbol')
    throw refusal(walk, `is a ${typeof value}, which JSON cannot hold`)
  if (typeof value !== 'object' || value === null) return
  if (walk.path.length >= deepest) throw tooDeep(walk)
  if (hasToJson(value)) {
    if (value instanceof Date && Number.isNaN(value.getTime())) throw refusal(walk, 'is an invalid date')
    walk.path.push('toJSON()')
    assertCarried(value.toJSON(), walk, isBigintText)
    walk.path.pop()
    return
  }
  const isLost = ArrayBuffer.isView(value) || value instanceof Map || value instanceof Set
  if (isLost || (!Array.isArray(value) && !isPlainObject(value) && Object.keys(value).length === 0))
    throw refusal(walk, `is ${named(value)}, which JSON cannot hold`)
  const isList = Array.isArray(value)
  for (const key of Object.keys(value)) {
    walk.path.push(isList ? Number(key) : key)
    assertCarried((value as Readonly<Record<string, unknown>>)[key], walk, isBigintText)
    walk.path.pop()
  }
}

function bigintAsText(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value
}

/** Of this realm or another one; not an instance of a class, which may keep more than it shows. */
export function isPlainObject(value: object): value is Readonly<Record<string, unknown>> {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === Object.prototype || prototype === null) return true
  return Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype as object, 'isPrototypeOf')
}

/** Its names are its indices and `length`. The class of another realm has the same text, and a class of yours has another. */
function isPlainList(list: readonly unknown[]): boolean {
  const { constructor } = list
  return (constructor === Array || String(constructor) === String(Array)) && Reflect.ownKeys(list).length <= list.length + 1
}

function hasToJson(value: object | bigint): value is { toJSON(): unknown } {
  return typeof (value as { readonly toJSON?: unknown }).toJSON === 'function'
}

/** Most text needs no escapes, and asking costs less than JSON does. */
function quoted(text: string): string {
  return text.length < 64 && /^[ !#-[\]-\u07ff]*$/.test(text) ? `"${text}"` : JSON.stringify(text)
}

function tagOf(value: object): string {
  return Object.prototype.toString.call(value).slice(8, -1)
}

function base64(buffer: ArrayBufferLike, offset = 0, length = buffer.byteLength): string {
  return Buffer.from(buffer as ArrayBuffer, offset, length).toString('base64')
}

function named(value: object): string {
  const { constructor } = value as { readonly constructor?: { readonly name?: unknown } }
  const name = typeof constructor?.name === 'string' && constructor.name !== '' ? constructor.name : tagOf(value)
  return `an instance of ${name}`
}

function tooDeep(walk: Walk): WaybillError {
  return refusal({ ...walk, path: walk.path.slice(0, 8) }, `has a cycle below it, or more than ${deepest} levels`)
}

function tooLarge(walk: Walk): WaybillError {
  return refusal({ ...walk, path: [] }, `has more than ${walk.maxLength} bytes`)
}

function refusal({ options: { what, remedy }, path }: Walk, fault: string, cause?: unknown): WaybillError {
  const steps = path.map((step) => {
    if (step === 'toJSON()') return '.toJSON()'
    return typeof step === 'string' && /^[A-Za-z_$][\w$]*$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`
  })
  const sentence = `${what}${steps.join('')} ${fault}.`
  return new WaybillError('INVALID_INPUT', remedy === undefined ? sentence : `${sentence} ${remedy}`, { cause })
}
