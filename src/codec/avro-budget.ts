/**
 * Counts what Avro bytes stand for before the reader makes anything of them: fields, and items of lists and maps, at all levels.
 *
 * A list says in front how many items it has, and the reader believes it: five bytes would make an array of billions. Every item takes a
 * byte here (see avro.ts), so that the count comes to the end of the bytes before that. A schema without lists, maps and records
 * inside themselves bounds its data by itself, and costs nothing.
 */
import avsc from 'avsc'
import { overBudget, type Budget } from '../core/encoding/budget.ts'
import { WaybillError } from '../core/errors.ts'

/** Throws TOO_LARGE for bytes beyond the budget, INVALID_INPUT for bytes that end too early. */
export type AvroCount = (bytes: Buffer, budget: Budget) => void

/** The count for a schema; `undefined` if its data cannot be too much. */
export function avroCount(type: avsc.Type): AvroCount | undefined {
  const compiled: Compiled = { walks: new Map(), isUnbounded: false }
  const walk = compile(type, compiled)
  if (!compiled.isUnbounded) return undefined
  return (bytes, budget) => walk(new Cursor(bytes, budget))
}

type Walk = (cursor: Cursor) => void

interface Compiled {
  readonly walks: Map<avsc.Type, Walk | undefined>
  isUnbounded: boolean
}

function compile(type: avsc.Type, compiled: Compiled): Walk {
  const { walks } = compiled
  if (walks.has(type)) {
    // `undefined`: it is inside itself, and its walk is not there yet.
    compiled.isUnbounded ||= walks.get(type) === undefined
    return walks.get(type) ?? ((cursor) => walks.get(type)?.(cursor))
  }
  walks.set(type, undefined)
  const walk = walkOf(type, compiled)
  walks.set(type, walk)
  return walk
}

function walkOf(type: avsc.Type, compiled: Compiled): Walk {
  const { types } = avsc
  if (type instanceof types.RecordType) {
    const fields = type.fields.map((field) => compile(field.type, compiled))
    return (cursor) => cursor.inside(fields.length, () => fields.forEach((field) => field(cursor)))
  }
  if (type instanceof types.ArrayType) {
    compiled.isUnbounded = true
    return blocksOf(compile(type.itemsType, compiled))
  }
  if (type instanceof types.MapType) {
    compiled.isUnbounded = true
    const value = compile(type.valuesType, compiled)
    return blocksOf((cursor) => {
      skipText(cursor)
      value(cursor)
    })
  }
  if (type instanceof types.WrappedUnionType || type instanceof types.UnwrappedUnionType) {
    const branches = type.types.map((branch) => compile(branch, compiled))
    return (cursor) => (branches[cursor.long()] ?? cutOff)(cursor)
  }
  if (type instanceof types.LogicalType) return compile(type.underlyingType, compiled)
  if (type instanceof types.StringType || type instanceof types.BytesType) return skipText
  if (type instanceof types.NullType) return () => {}
  const size = fixedSize(type)
  return size === undefined ? (cursor) => void cursor.long() : (cursor) => cursor.skip(size)
}

/** `undefined` for what is a number of its own length: an int, a long, an enum. */
function fixedSize(type: avsc.Type): number | undefined {
  const { types } = avsc
  if (type instanceof types.FixedType) return type.size
  if (type instanceof types.BooleanType) return 1
  if (type instanceof types.FloatType) return 4
  return type instanceof types.DoubleType ? 8 : undefined
}

function blocksOf(item: Walk): Walk {
  return (cursor) => {
    for (let count = cursor.long(); count !== 0; count = cursor.long()) {
      // A negative count is followed by the block's size in bytes.
      if (count < 0) cursor.long()
      const items = Math.abs(count)
      cursor.inside(items, () => {
        for (let i = 0; i < items; i += 1) item(cursor)
      })
    }
  }
}

function skipText(cursor: Cursor): void {
  cursor.skip(cursor.long())
}

class Cursor {
  readonly #bytes: Buffer
  readonly #budget: Budget
  #at = 0
  #values = 0
  #depth = 0

  constructor(bytes: Buffer, budget: Budget) {
    this.#bytes = bytes
    this.#budget = budget
  }

  skip(bytes: number): void {
    this.#at += bytes
    if (bytes < 0 || this.#at > this.#bytes.length) cutOff()
  }

  /** A whole number; one of more than 53 bits is only skipped rightly. */
  long(): number {
    let [value, scale] = [0, 1]
    for (;;) {
      const byte = this.#bytes[this.#at]
      if (byte === undefined) return cutOff()
      this.#at += 1
      value += (byte & 127) * scale
      if (byte < 128) return value % 2 === 0 ? value / 2 : -(value + 1) / 2
      scale *= 128
    }
  }

  inside(values: number, work: () => void): void {
    this.#values += values
    this.#depth += 1
    if (this.#values > this.#budget.maxValues) throw overBudget('maxValues', this.#budget)
    if (this.#depth > this.#budget.maxDepth) throw overBudget('maxDepth', this.#budget)
    work()
    this.#depth -= 1
  }
}

function cutOff(): never {
  throw new WaybillError('INVALID_INPUT', 'The payload is not Avro of this schema: it ends before what it announces.')
}
