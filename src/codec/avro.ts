/**
 * Avro for event data: `state(avro<Video>(schema))`. Bytes are plain Avro binary, as Pub/Sub topics with a schema want them.
 *
 * Data that does not fit the schema is refused when the event is added, a field the schema does not know included. Avro can
 * only be read with the schema it was written with, so older versions are named with theirs; their upcasters get the data
 * in its old shape. What bytes from elsewhere could do harm with is refused: `__proto__` as a key, lists whose items
 * take no bytes, of which five bytes can announce billions, and more values or levels than the budget has.
 */
import avsc from 'avsc'
import { resolveBudget, type Budget, type DataBudget } from '../core/encoding/budget.ts'
import type { Codec } from '../core/encoding/codec.ts'
import { errorMessage, WaybillError } from '../core/errors.ts'
import { refuseUnknown } from '../core/options.ts'
import { avroCount, type AvroCount } from './avro-budget.ts'

export type AvroSchema = avsc.Schema

export interface AvroOptions extends DataBudget {
  /** The schemas of older schema versions, by version: what is stored was written with them. @default {} */
  readonly versions?: Readonly<Record<number, AvroSchema>>
}

export interface AvroCodec<Data> extends Codec<Data> {
  /** The schema as text, as a schema registry takes it. */
  readonly definition: string
}

export const avroContentType = 'avro/binary'

/** Avro, by the schema that `Data` describes. */
export function avro<Data>(schema: AvroSchema, options: AvroOptions = {}): AvroCodec<Data> {
  const { versions: older = {}, ...given } = options
  refuseUnknown('avro', options, ['versions', 'maxValues', 'maxDepth'])
  const budget = resolveBudget('avro', given)
  const current = parseSchema(schema)
  const versions = new Map(Object.entries(older).map(([version, each]) => [Number(version), parseSchema(each)]))
  const validate = (data: unknown): Data => {
    const problems: string[] = []
    current.type.isValid(data, {
      noUndeclaredFields: true,
      errorHook: (path: string[]) => void problems.push(path.join('.') || '(all)'),
    })
    if (problems.length > 0) throw misfit(`these do not fit the schema: ${problems.slice(0, 5).join(', ')}`)
    return data as Data
  }
  return {
    contentType: avroContentType,
    definition: JSON.stringify(schema),
    validate,
    encode: (data) => {
      const bytes = encodeWith(current, validate(data))
      // What would be refused to a reader is refused to the writer.
      assertBudget(current, bytes, budget)
      if (current.hasMaps && asBuffer(bytes).includes('__proto__')) decodeWith(current, bytes, budget)
      if (mayBeIllFormed(asBuffer(bytes)) && !isWellFormed(data)) throw misfit('a text is not well-formed Unicode')
      return bytes
    },
    decode: (bytes, schemaVersion) => decodeWith(versions.get(schemaVersion ?? 0) ?? current, bytes, budget),
  }
}

/** Why events written with `older` could not be read with `newer`; empty if they can. */
export function avroProblems(older: AvroSchema, newer: AvroSchema): readonly string[] {
  const [writer, reader] = [parseSchema(older), parseSchema(newer)]
  try {
    reader.type.createResolver(writer.type)
    return []
  } catch (error) {
    return [errorMessage(error)]
  }
}

interface ParsedSchema {
  readonly type: avsc.Type
  readonly hasMaps: boolean
  readonly count: AvroCount | undefined
}

function parseSchema(schema: AvroSchema): ParsedSchema {
  let type: avsc.Type
  try {
    type = avsc.Type.forSchema(schema, { omitRecordMethods: true })
  } catch (cause) {
    throw new WaybillError('INVALID_OPTION', `avro: this is no Avro schema: ${errorMessage(cause)}`, { cause })
  }
  const parts = partsOf(type)
  if (parts.some((part) => part instanceof avsc.types.ArrayType && isEmptyOnTheWire(part.itemsType))) {
    throw new WaybillError(
      'INVALID_OPTION',
      'avro: an array whose items take no bytes cannot be read safely; give its items a field or count them instead.',
    )
  }
  return { type, hasMaps: parts.some((part) => part instanceof avsc.types.MapType), count: avroCount(type) }
}

function encodeWith({ type }: ParsedSchema, data: unknown): Uint8Array {
  try {
    return type.toBuffer(data)
  } catch (cause) {
    throw misfit(errorMessage(cause), cause)
  }
}

function decodeWith(schema: ParsedSchema, bytes: Uint8Array, budget: Budget): unknown {
  assertBudget(schema, bytes, budget)
  try {
    const data: unknown = schema.type.fromBuffer(asBuffer(bytes))
    refuseProtoKeys(schema, bytes, data)
    return data
  } catch (cause) {
    if (cause instanceof WaybillError) throw cause
    throw new WaybillError('INVALID_INPUT', `The payload is not Avro of this schema: ${errorMessage(cause)}`, { cause })
  }
}

function assertBudget({ count }: ParsedSchema, bytes: Uint8Array, budget: Budget): void {
  try {
    count?.(asBuffer(bytes), budget)
  } catch (cause) {
    if (cause instanceof WaybillError) throw cause
    throw misfit(errorMessage(cause), cause)
  }
}

/** A map that had such a key was given another prototype by reading it. The key is gone then, and writing it again shows that. */
function refuseProtoKeys({ type, hasMaps }: ParsedSchema, bytes: Uint8Array, data: unknown): void {
  if (!hasMaps || !asBuffer(bytes).includes('__proto__')) return
  if (!type.toBuffer(data).equals(bytes)) throw misfit('a map has a key "__proto__"')
}

/** Half a surrogate pair has no bytes of its own: written are those of another character, or some that begin with this one. */
function mayBeIllFormed(bytes: Buffer): boolean {
  return bytes.includes(0xed) || bytes.includes('\ufffd')
}

/** Whether all texts are, keys of maps included. */
function isWellFormed(data: unknown): boolean {
  if (typeof data === 'string') return data.isWellFormed()
  if (typeof data !== 'object' || data === null || ArrayBuffer.isView(data)) return true
  return Object.entries(data).every(([name, part]) => name.isWellFormed() && isWellFormed(part))
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function misfit(why: string, cause?: unknown): WaybillError {
  return new WaybillError('INVALID_INPUT', `The data is refused: ${why}.`, { cause })
}

/** The type and all types inside it, each once. */
function partsOf(type: avsc.Type, seen: Set<avsc.Type> = new Set()): readonly avsc.Type[] {
  if (!seen.has(type)) {
    seen.add(type)
    for (const part of childrenOf(type)) partsOf(part, seen)
  }
  return [...seen]
}

function childrenOf(type: avsc.Type): readonly avsc.Type[] {
  if (type instanceof avsc.types.ArrayType) return [type.itemsType]
  if (type instanceof avsc.types.MapType) return [type.valuesType]
  if (type instanceof avsc.types.RecordType) return type.fields.map((field) => field.type)
  if (type instanceof avsc.types.WrappedUnionType || type instanceof avsc.types.UnwrappedUnionType) return type.types
  return type instanceof avsc.types.LogicalType ? [type.underlyingType] : []
}

/** Whether a value may take no bytes. A record inside itself is taken for one that does: it has no finite value anyway. */
function isEmptyOnTheWire(type: avsc.Type, outer: readonly avsc.Type[] = []): boolean {
  if (type instanceof avsc.types.NullType || outer.includes(type)) return true
  if (type instanceof avsc.types.FixedType) return type.size === 0
  if (type instanceof avsc.types.LogicalType) return isEmptyOnTheWire(type.underlyingType, outer)
  return type instanceof avsc.types.RecordType && type.fields.every((field) => isEmptyOnTheWire(field.type, [...outer, type]))
}
