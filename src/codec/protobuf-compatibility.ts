/**
 * Whether a new Protobuf schema still reads what an older one wrote: the check for CI.
 *
 * Protobuf finds fields by number, so a number must keep its meaning: the same type, or one with the same bytes that holds
 * whatever the older one could (int32 may become int64, not the other way), and a list stays a list. A field may be added
 * or go; its number must not come back as something else.
 */
import { ScalarType, type DescField, type DescMessage } from '@bufbuild/protobuf'

/** Why events written with `older` could not be read with `newer`; empty if they can. */
export function protobufProblems(older: DescMessage, newer: DescMessage): readonly string[] {
  return compare(older, newer, new Set())
}

function compare(older: DescMessage, newer: DescMessage, seen: Set<string>): string[] {
  const pair = `${older.typeName} ${newer.typeName}`
  if (seen.has(pair)) return []
  seen.add(pair)
  return older.fields.flatMap((before) => {
    const after = newer.fields.find(({ number }) => number === before.number)
    if (after === undefined) return []
    const where = `${older.typeName}.${before.name} (${before.number})`
    if (!isReadable(before, after)) return [`${where} was ${describe(before)} and is now ${describe(after)}`]
    return before.message !== undefined && after.message !== undefined ? compare(before.message, after.message, seen) : []
  })
}

function isReadable(before: DescField, after: DescField): boolean {
  return shapeOf(before) === shapeOf(after) && isHeld(itemOf(before), itemOf(after)) && isHeld(keyOf(before), keyOf(after))
}

function shapeOf({ fieldKind }: DescField): string {
  return fieldKind === 'list' || fieldKind === 'map' ? fieldKind : 'single'
}

/** An enum is a number on the wire, and one that is not on its list stays a number. */
function itemOf(field: DescField): Item {
  return field.message !== undefined ? 'message' : field.enum !== undefined ? ScalarType.INT32 : field.scalar
}

function keyOf(field: DescField): Item {
  return field.fieldKind === 'map' ? field.mapKey : undefined
}

type Item = ScalarType | 'message' | undefined

/** Text can be read as bytes, but not all bytes as text; so what is no number keeps its type. */
function isHeld(before: Item, after: Item): boolean {
  if (before === after) return true
  const [written, read] = [numbersOf(before), numbersOf(after)]
  if (written === undefined || read === undefined || written.wire !== read.wire) return false
  return read.min <= written.min && written.max <= read.max
}

interface Numbers {
  /** Types that share a word here have the same bytes. */
  readonly wire: 'varint' | 'zigzag'
  readonly min: bigint
  readonly max: bigint
}

const signed = (bits: bigint): Pick<Numbers, 'min' | 'max'> => ({ min: -(2n ** (bits - 1n)), max: 2n ** (bits - 1n) - 1n })
const unsigned = (bits: bigint): Pick<Numbers, 'min' | 'max'> => ({ min: 0n, max: 2n ** bits - 1n })

/** Whole numbers whose bytes do not tell how wide they are. Those of a fixed width differ from each other in it, or in the sign. */
function numbersOf(item: Item): Numbers | undefined {
  switch (item) {
    case ScalarType.BOOL:
      return { wire: 'varint', ...unsigned(1n) }
    case ScalarType.INT32:
      return { wire: 'varint', ...signed(32n) }
    case ScalarType.INT64:
      return { wire: 'varint', ...signed(64n) }
    case ScalarType.UINT32:
      return { wire: 'varint', ...unsigned(32n) }
    case ScalarType.UINT64:
      return { wire: 'varint', ...unsigned(64n) }
    case ScalarType.SINT32:
      return { wire: 'zigzag', ...signed(32n) }
    case ScalarType.SINT64:
      return { wire: 'zigzag', ...signed(64n) }
    default:
      return undefined
  }
}

function describe(field: DescField): string {
  const item =
    field.message?.typeName ?? field.enum?.typeName ?? (field.scalar === undefined ? '' : ScalarType[field.scalar].toLowerCase())
  return field.fieldKind === 'list' ? `a list of ${item}` : field.fieldKind === 'map' ? `a map of ${item}` : item
}
