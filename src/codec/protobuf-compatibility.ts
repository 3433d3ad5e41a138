/**
 * Whether a new Protobuf schema still reads what an older one wrote: the check for CI.
 *
 * Protobuf finds fields by number, so a number must keep its meaning: the same type, or one with the same bytes, and a list
 * stays a list. A field may be added or go; its number must not come back as something else.
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
    if (wireType(before) !== wireType(after)) return [`${where} was ${describe(before)} and is now ${describe(after)}`]
    return before.message !== undefined && after.message !== undefined ? compare(before.message, after.message, seen) : []
  })
}

/** Types that share a word here have the same bytes, and each reads the other's. */
function wireType(field: DescField): string {
  const item = field.message !== undefined ? 'message' : field.enum !== undefined ? 'varint' : scalarWire(field.scalar)
  if (field.fieldKind === 'list') return `list of ${item}`
  return field.fieldKind === 'map' ? `map from ${scalarWire(field.mapKey)} to ${item}` : item
}

function scalarWire(scalar: ScalarType | undefined): string {
  switch (scalar) {
    case ScalarType.INT32:
    case ScalarType.INT64:
    case ScalarType.UINT32:
    case ScalarType.UINT64:
    case ScalarType.BOOL:
      return 'varint'
    case ScalarType.SINT32:
    case ScalarType.SINT64:
      return 'zigzag'
    case ScalarType.FIXED32:
    case ScalarType.SFIXED32:
      return 'fixed32'
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return 'fixed64'
    default:
      // Text can be read as bytes, but not all bytes as text.
      return scalar === undefined ? 'nothing' : ScalarType[scalar].toLowerCase()
  }
}

function describe(field: DescField): string {
  const item =
    field.message?.typeName ?? field.enum?.typeName ?? (field.scalar === undefined ? '' : ScalarType[field.scalar].toLowerCase())
  return field.fieldKind === 'list' ? `a list of ${item}` : field.fieldKind === 'map' ? `a map of ${item}` : item
}
