/** What a definition is compiled to: a check that throws on data that does not conform. Avro needs `avsc`, which is optional. */
import { createRequire } from 'node:module'
import type { SchemaResource } from '../model/resources.ts'
import { errorMessage, invalid, RpcError } from '../model/rpc-error.ts'
import { compileProtobuf } from './protobuf-schema.ts'

export type Encoding = 'JSON' | 'BINARY'

export type MessageCheck = (data: Buffer, encoding: Encoding) => void

interface AvroType {
  readonly typeName: string
  fromBuffer(data: Buffer): unknown
  fromString(text: string): unknown
}

interface Avsc {
  readonly Type: { forSchema(schema: unknown): AvroType }
}

/** Compiles a definition; throws INVALID_ARGUMENT with the reason when it is none. */
export function compileSchema({ type, definition = '' }: SchemaResource): MessageCheck {
  if (definition === '') throw invalid('A schema needs a definition.')
  if (definition.length > 300_000) throw invalid('A schema definition has at most 300 KB.')
  if (type === 'AVRO') return compileAvro(definition)
  if (type === 'PROTOCOL_BUFFER') return compileProtobuf(definition)
  throw invalid('A schema needs a type: AVRO or PROTOCOL_BUFFER.')
}

/** Throws INVALID_ARGUMENT with the reason when it is not an Avro record. */
function compileAvro(definition: string): MessageCheck {
  const { Type } = loadAvsc()
  let type: AvroType
  try {
    type = Type.forSchema(JSON.parse(definition))
  } catch (error) {
    throw invalid(`Invalid Avro schema definition: ${errorMessage(error)}`)
  }
  if (type.typeName !== 'record' && type.typeName !== 'error')
    throw invalid('Invalid Avro schema definition: the top level must be a record.')
  return (data, encoding) => {
    try {
      if (encoding === 'BINARY') type.fromBuffer(data)
      else type.fromString(data.toString('utf8'))
    } catch (error) {
      throw invalid(`Invalid data in message: ${errorMessage(error)}`)
    }
  }
}

function loadAvsc(): Avsc {
  try {
    return createRequire(import.meta.url)('avsc') as Avsc
  } catch {
    throw new RpcError('UNIMPLEMENTED', 'Avro schemas need the package avsc: npm install avsc')
  }
}
