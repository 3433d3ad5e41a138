/**
 * Whether a value fits a Protobuf message, field by field; the names of those that do not, never their values.
 *
 * Protobuf's own runtime leaves that to the compiler: at run time it drops fields it does not know and turns a number into
 * text. Ranges of numbers are left to the encoder, which knows them.
 */
import { ScalarType, type DescField, type DescMessage, type DescOneof } from '@bufbuild/protobuf'
import { isWrapperDesc } from '@bufbuild/protobuf/wkt'

const deepest = 100

/** One line for each field that does not fit; empty if all do. */
export function messageProblems(schema: DescMessage, value: unknown): readonly string[] {
  const problems: string[] = []
  checkMessage(schema, value, { path: '', depth: 0, problems })
  return problems
}

interface Place {
  readonly path: string
  readonly depth: number
  readonly problems: string[]
}

function checkMessage(schema: DescMessage, value: unknown, place: Place): void {
  if (place.depth > deepest) return complain(place, `is nested deeper than ${deepest} messages`)
  if (!isRecord(value)) return complain(place, `must be an object (${schema.typeName})`)
  // Well-known types have shapes of their own (a Struct is a plain object); the encoder checks those.
  if (schema.typeName.startsWith('google.protobuf.') && !isWrapperDesc(schema)) return
  for (const [name, part] of Object.entries(value)) {
    if (name.startsWith('$') || part === undefined) continue
    const member = schema.members.find(({ localName }) => localName === name)
    const inside = within(place, name)
    if (member === undefined) complain(inside, 'is no field of the message')
    else if (part === null) complain(inside, 'is null; leave it out instead')
    else if (member.kind === 'oneof') checkOneof(member, part, inside)
    else checkField(member, part, inside)
  }
}

function checkOneof(oneof: DescOneof, value: unknown, place: Place): void {
  if (!isRecord(value)) return complain(place, 'must be { case, value }')
  const { case: chosen, value: part } = value
  if (chosen === undefined) return
  const field = oneof.fields.find(({ localName }) => localName === chosen)
  if (field === undefined) complain(place, 'names no case of the oneof')
  else checkField(field, part, within(place, field.localName))
}

function checkField(field: DescField, value: unknown, place: Place): void {
  if (field.fieldKind === 'list') {
    if (!Array.isArray(value)) return complain(place, 'must be an array')
    value.forEach((item: unknown, index) => checkValue(field, item, within(place, String(index))))
  } else if (field.fieldKind === 'map') {
    if (!isRecord(value)) return complain(place, 'must be an object')
    if (Object.hasOwn(value, '__proto__')) return complain(place, 'has a key "__proto__"')
    for (const [key, item] of Object.entries(value)) {
      if (!key.isWellFormed()) return complain(place, 'has a key that is not well-formed text')
      checkValue(field, item, within(place, key))
    }
  } else checkValue(field, value, place)
}

function checkValue(field: DescField, value: unknown, place: Place): void {
  // A wrapper (StringValue) is kept as its bare value, but as a message in lists, maps and oneofs.
  if (field.fieldKind === 'message' && field.oneof === undefined && isWrapperDesc(field.message)) {
    return checkValue(field.message.fields[0], value, place)
  }
  if (field.message !== undefined) checkMessage(field.message, value, { ...place, depth: place.depth + 1 })
  else if (field.enum !== undefined) {
    if (!Number.isInteger(value)) complain(place, `must be a value of ${field.enum.typeName}`)
  } else if (field.scalar !== undefined && !fitsScalar(field.scalar, value)) {
    complain(place, `must be ${ScalarType[field.scalar].toLowerCase()}`)
  }
}

function fitsScalar(scalar: ScalarType, value: unknown): boolean {
  switch (scalar) {
    case ScalarType.STRING:
      return typeof value === 'string' && value.isWellFormed()
    case ScalarType.BYTES:
      return value instanceof Uint8Array
    case ScalarType.BOOL:
      return typeof value === 'boolean'
    case ScalarType.INT64:
    case ScalarType.UINT64:
    case ScalarType.SINT64:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return typeof value === 'bigint' || (typeof value === 'string' && /^-?\d+$/.test(value)) || Number.isSafeInteger(value)
    default:
      return typeof value === 'number'
  }
}

function within(place: Place, name: string): Place {
  return { ...place, path: place.path === '' ? name : `${place.path}.${name}` }
}

function complain({ path, problems }: Place, why: string): void {
  problems.push(path === '' ? `it ${why}` : `${path} ${why}`)
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
