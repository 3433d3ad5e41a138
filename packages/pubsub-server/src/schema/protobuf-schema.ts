/**
 * Protocol Buffers schemas: a definition with exactly one top-level message and no imports.
 *
 * Binary data must decode; JSON data must follow the proto3 JSON mapping, with no field the message does not have.
 */
import protobuf from 'protobufjs'
import { errorMessage, invalid } from '../model/rpc-error.ts'

export function compileProtobuf(definition: string): (data: Buffer, encoding: 'JSON' | 'BINARY') => void {
  const type = soleMessage(definition)
  return (data, encoding) => {
    try {
      if (encoding === 'BINARY') type.decode(data)
      else checkJson(type, JSON.parse(data.toString('utf8')))
    } catch (error) {
      throw invalid(`Invalid data in message: ${errorMessage(error)}`)
    }
  }
}

function soleMessage(definition: string): protobuf.Type {
  const root = new protobuf.Root()
  let imports: readonly string[]
  try {
    imports = protobuf.parse(definition, root).imports ?? []
    root.resolveAll()
  } catch (error) {
    throw invalid(`Invalid Protocol Buffers schema definition: ${errorMessage(error)}`)
  }
  if (imports.length > 0)
    throw invalid(`Invalid Protocol Buffers schema definition: it imports ${imports.join(', ')}; imports are not allowed.`)
  const messages = topLevelMessages(root)
  const [type] = messages
  if (type === undefined || messages.length > 1) {
    throw invalid(
      `Invalid Protocol Buffers schema definition: it must have exactly one top-level message, not ${messages.length}.`,
    )
  }
  return type
}

/** Looks through packages, not into messages. */
function topLevelMessages(space: { readonly nestedArray: readonly unknown[] }): protobuf.Type[] {
  return space.nestedArray.flatMap((nested) => {
    if (nested instanceof protobuf.Type) return [nested]
    const isNamespace = typeof nested === 'object' && nested !== null && 'nestedArray' in nested
    return isNamespace ? topLevelMessages(nested as { nestedArray: readonly unknown[] }) : []
  })
}

function checkJson(type: protobuf.Type, value: unknown): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new TypeError(`${type.name}: an object is expected`)
  const fields = new Map(
    type.fieldsArray.flatMap((field) => [[field.name, field] as const, [snakeCase(field.name), field] as const]),
  )
  for (const [name, part] of Object.entries(value)) {
    const field = fields.get(name)
    if (field === undefined) throw new TypeError(`${type.name}: no field is named ${name}`)
    if (part !== null) checkField(field, part)
  }
  for (const field of type.fieldsArray) {
    const isSet = field.name in value || snakeCase(field.name) in value
    if (field.required && !isSet) throw new TypeError(`${type.name}: ${field.name} is required`)
  }
}

function checkField(field: protobuf.Field, value: unknown): void {
  if (field.map) {
    if (typeof value !== 'object' || value === null) throw new TypeError(`${field.name}: an object is expected`)
    for (const part of Object.values(value)) checkValue(field, part)
  } else if (field.repeated) {
    if (!Array.isArray(value)) throw new TypeError(`${field.name}: a list is expected`)
    for (const part of value) checkValue(field, part)
  } else checkValue(field, value)
}

function checkValue(field: protobuf.Field, value: unknown): void {
  const { resolvedType } = field
  if (resolvedType instanceof protobuf.Type) return checkJson(resolvedType, value)
  const isRight = resolvedType === null ? isScalar(field.type, value) : isEnumValue(resolvedType.values ?? {}, value)
  if (!isRight) throw new TypeError(`${field.name}: ${JSON.stringify(value)} is not a ${field.type}`)
}

function isEnumValue(values: Record<string, number>, value: unknown): boolean {
  return typeof value === 'number' ? Number.isInteger(value) : typeof value === 'string' && Object.hasOwn(values, value)
}

function isScalar(type: string, value: unknown): boolean {
  if (type === 'string') return typeof value === 'string'
  if (type === 'bool') return typeof value === 'boolean'
  if (type === 'bytes') return typeof value === 'string' && /^[A-Za-z0-9+/_-]*={0,2}$/.test(value)
  if (type === 'double' || type === 'float')
    return typeof value === 'number' || ['NaN', 'Infinity', '-Infinity'].includes(String(value))
  const text = typeof value === 'number' || typeof value === 'string' ? String(value) : ''
  if (!/^-?\d+$/.test(text)) return false
  const number = BigInt(text)
  const bits = type.endsWith('64') ? 64n : 32n
  const isUnsigned = type.startsWith('u') || type.startsWith('fixed')
  return isUnsigned ? number >= 0n && number < 1n << bits : number >= -(1n << (bits - 1n)) && number < 1n << (bits - 1n)
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}
