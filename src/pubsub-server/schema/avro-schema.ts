/** Avro schemas, by `avsc` when it is installed. */
import { createRequire } from 'node:module'
import { errorMessage } from '../../core/errors.ts'
import { invalid, RpcError } from '../rpc-error.ts'
import type { MessageCheck } from './message-check.ts'

interface AvroType {
  readonly typeName: string
  fromBuffer(data: Buffer): unknown
  fromString(text: string): unknown
}

interface Avsc {
  readonly Type: { forSchema(schema: unknown): AvroType }
}

/** Compiles a definition; throws INVALID_ARGUMENT with the reason when it is not an Avro record. */
export function compileAvro(definition: string): MessageCheck {
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
