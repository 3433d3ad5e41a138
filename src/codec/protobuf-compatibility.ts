/**
 * Whether a new Protobuf schema still reads what an older one wrote: the check for CI.
 *
 * Protobuf finds fields by number, so a number must keep its meaning: the same type, or one with the same bytes that holds
 * whatever the older one could (int32 may become int64, not the other way), and a list stays a list. A field may be added
 * or go; its number must not come back as something else. Fields that could be set together must not meet in one oneof.
 */
import { ScalarType, type DescEnum, type DescField, type DescMessage } from '@bufbuild/protobuf'

/** Why events written with `older` could not be read with `newer`; empty if they can. */
export function protobufProblems(older: DescMessage, newer: DescMessage): readonly string[] {
  return compare(older, newer, new Set())
}

function compare(older: DescMessage, newer: DescMessage, seen: Set<string>): string[] {
  const pair = `${older.typeName} ${newer.typeName}`
  if (seen.has(pair)) return []
  seen.add(pair)
  const problems = older.fields.flatMap((before) => {
    const after = newer.fields.find(({ number }) => number === before.number)
    if (after === undefined) return []
    if (!isReadable(before, after)) {
      return [`${nameOf(before)} was ${describe(before)} and is now ${describe(after)}${describeMissing(before, after)}`]
    }
    return before.message !== undefined && after.message !== undefined ? compare(before.message, after.message, seen) : []
  })
  return [...problems, ...oneofProblems(older, newer)]
}

/** A oneof keeps the last value it reads, so its cases must have excluded each other before. */
function oneofProblems(older: DescMessage, newer: DescMessage): string[] {
  return newer.oneofs.flatMap((oneof) => {
    const cases = older.fields.filter(({ number }) => oneof.fields.some((after) => after.number === number))
    const couldBeSet = new Set(cases.map((field) => field.oneof ?? field))
    if (couldBeSet.size < 2) return []
    return [`${cases.map(nameOf).join(', ')} were not in one oneof and now are (${oneof.name})`]
  })
}

function isReadable(before: DescField, after: DescField): boolean {
  return shapeOf(before) === shapeOf(after) && isHeld(itemOf(before), itemOf(after)) && isHeld(keyOf(before), keyOf(after))
}

function shapeOf({ fieldKind }: DescField): string {
  return fieldKind === 'list' || fieldKind === 'map' ? fieldKind : 'single'
}

/** A group is a message between two marks instead of after its length: neither can be read as the other. */
function itemOf(field: DescField): Item {
  if (field.message !== undefined) return field.delimitedEncoding ? 'group' : 'message'
  return field.enum ?? field.scalar
}

function keyOf(field: DescField): Item {
  return field.fieldKind === 'map' ? field.mapKey : undefined
}

type Item = ScalarType | DescEnum | 'message' | 'group' | undefined

/** Text can be read as bytes, but not all bytes as text; so what is no number keeps its type. */
function isHeld(before: Item, after: Item): boolean {
  if (before === after) return true
  const [written, read] = [numbersOf(before), numbersOf(after)]
  if (written === undefined || read === undefined || written.wire !== read.wire) return false
  return written.ranges.every(({ min, max }) => read.ranges.some((range) => range.min <= min && max <= range.max))
}

interface Numbers {
  /** Types that share a word here have the same bytes. */
  readonly wire: 'varint' | 'zigzag'
  readonly ranges: readonly Range[]
}

interface Range {
  readonly min: bigint
  readonly max: bigint
}

const signed = (bits: bigint): Range => ({ min: -(2n ** (bits - 1n)), max: 2n ** (bits - 1n) - 1n })
const unsigned = (bits: bigint): Range => ({ min: 0n, max: 2n ** bits - 1n })
const only = (number: number): Range => ({ min: BigInt(number), max: BigInt(number) })

/** Whole numbers whose bytes do not tell how wide they are. Those of a fixed width differ from each other in it, or in the sign. */
function numbersOf(item: Item): Numbers | undefined {
  if (typeof item === 'object') return { wire: 'varint', ranges: rangesOf(item) }
  switch (item) {
    case ScalarType.BOOL:
      return { wire: 'varint', ranges: [only(0), only(1)] }
    case ScalarType.INT32:
      return { wire: 'varint', ranges: [signed(32n)] }
    case ScalarType.INT64:
      return { wire: 'varint', ranges: [signed(64n)] }
    case ScalarType.UINT32:
      return { wire: 'varint', ranges: [unsigned(32n)] }
    case ScalarType.UINT64:
      return { wire: 'varint', ranges: [unsigned(64n)] }
    case ScalarType.SINT32:
      return { wire: 'zigzag', ranges: [signed(32n)] }
    case ScalarType.SINT64:
      return { wire: 'zigzag', ranges: [signed(64n)] }
    default:
      return undefined
  }
}

/**
 * An open enum keeps a number that is not on its list; a closed one (proto2) reads as if nothing had been written.
 * In lists and maps too: protobuf-es keeps it there, against the rules of Protobuf; other readers do not.
 */
function rangesOf({ open, values }: DescEnum): readonly Range[] {
  return open ? [signed(32n)] : values.map(({ number }) => only(number))
}

function nameOf({ parent, name, number }: DescField): string {
  return `${parent.typeName}.${name} (${number})`
}

function describe(field: DescField): string {
  if (field.fieldKind === 'list') return `a list of ${describeItem(field)}`
  if (field.fieldKind === 'map') return `a map of ${describeScalar(field.mapKey)} to ${describeItem(field)}`
  return describeItem(field)
}

function describeItem(field: DescField): string {
  if (field.message !== undefined) return `${field.delimitedEncoding ? 'group ' : ''}${field.message.typeName}`
  if (field.enum !== undefined) return `${field.enum.open ? '' : 'closed enum '}${field.enum.typeName}`
  return describeScalar(field.scalar)
}

function describeScalar(scalar: ScalarType): string {
  return ScalarType[scalar].toLowerCase()
}

/** A closed enum that lost values still has its name: only the values tell what has changed. */
function describeMissing(before: DescField, after: DescField): string {
  if (before.enum === undefined || after.enum?.open !== false) return ''
  const left = after.enum.value
  const missing = before.enum.values.filter(({ number }) => left[number] === undefined)
  return missing.length === 0 ? '' : ` without ${missing.map(({ name, number }) => `${name} (${number})`).join(', ')}`
}
