/**
 * Counts the fields and items of Protobuf bytes, at all levels, before the reader makes anything of them: two bytes are an empty message
 * in a list, one is a number in a packed list.
 *
 * How deep messages are inside each other is bounded by the reader itself. What is no Protobuf is left to it as well.
 */
import { ScalarType, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { overBudget, type Budget } from '../core/encoding/budget.ts'

/** Throws TOO_LARGE for bytes beyond the budget. Bytes so few that they cannot be cost nothing. */
export function assertProtobufBudget(schema: DescMessage, bytes: Uint8Array, budget: Budget): void {
  if (bytes.length <= budget.maxValues) return
  const count: Count = { bytes, at: 0, values: 0, budget }
  countFields(count, shapeOf(schema), { end: bytes.length, depth: 0 })
}

interface Count {
  readonly bytes: Uint8Array
  readonly budget: Budget
  at: number
  values: number
}

/** What is inside a field: a message, or numbers of so many bytes (0: of their own length). */
type Inside = (() => Shape) | 0 | 4 | 8
type Shape = ReadonlyMap<number, Inside>

const shapes = new WeakMap<DescMessage, Shape>()
const nothing: Shape = new Map()
/** As deep as the reader goes. */
const deepest = 100

function shapeOf(schema: DescMessage): Shape {
  let shape = shapes.get(schema)
  if (shape === undefined) {
    const fields = schema.fields.map((field) => [field.number, insideOf(field)] as const)
    shape = new Map(fields.filter((field): field is [number, Inside] => field[1] !== undefined))
    shapes.set(schema, shape)
  }
  return shape
}

function insideOf(field: DescField): Inside | undefined {
  const { message } = field
  if (field.fieldKind === 'map') {
    // An entry is a message of a key and a value.
    const entry: Shape = message === undefined ? nothing : new Map([[2, () => shapeOf(message)]])
    return () => entry
  }
  if (message !== undefined) return () => shapeOf(message)
  if (field.fieldKind !== 'list') return undefined
  return field.listKind === 'enum' ? 0 : packedBytes(field.scalar)
}

function packedBytes(scalar: ScalarType | undefined): Inside | undefined {
  if (scalar === undefined || scalar === ScalarType.STRING || scalar === ScalarType.BYTES) return undefined
  const { FIXED64, SFIXED64, DOUBLE, FIXED32, SFIXED32, FLOAT } = ScalarType
  if (scalar === FIXED64 || scalar === SFIXED64 || scalar === DOUBLE) return 8
  return scalar === FIXED32 || scalar === SFIXED32 || scalar === FLOAT ? 4 : 0
}

function countFields(count: Count, shape: Shape, { end, depth }: { readonly end: number; readonly depth: number }): void {
  // Groups are messages that end with a mark of their own.
  const open: Shape[] = [shape]
  while (count.at < end) {
    const tag = varint(count)
    add(count, 1)
    const inside = open.at(-1)?.get(Math.floor(tag / 8))
    const wireType = tag & 7
    if (wireType === 0) varint(count)
    else if (wireType === 1) count.at += 8
    else if (wireType === 5) count.at += 4
    else if (wireType === 3) open.push(typeof inside === 'function' ? inside() : nothing)
    else if (wireType === 4) open.pop()
    else if (wireType === 2) countDelimited(count, inside, depth)
    else count.at = count.bytes.length
  }
}

function countDelimited(count: Count, inside: Inside | undefined, depth: number): void {
  const length = varint(count)
  const end = Math.min(count.at + length, count.bytes.length)
  if (typeof inside === 'function' && depth < deepest) countFields(count, inside(), { end, depth: depth + 1 })
  else if (inside === 0) countNumbers(count, end)
  else if (typeof inside === 'number') add(count, length / inside)
  count.at = end
}

function countNumbers(count: Count, end: number): void {
  for (; count.at < end; add(count, 1)) varint(count)
}

function add(count: Count, values: number): void {
  count.values += values
  if (count.values > count.budget.maxValues) throw overBudget('maxValues', count.budget)
}

/** One of more than 53 bits is only skipped rightly. */
function varint(count: Count): number {
  let [value, scale] = [0, 1]
  for (;;) {
    const byte = count.bytes[count.at] ?? 0
    count.at += 1
    value += (byte & 127) * scale
    if (byte < 128) return value
    scale *= 128
  }
}
