/**
 * Protocol Buffers for event data: `state(protobuf(VideoSchema))`, with the schemas that protobuf-es generates.
 *
 * Data that does not fit is refused when the event is added: values of the wrong type, and fields the message does not have,
 * which Protobuf itself would drop in silence. A reader passes over fields that it does not know, and keeps nothing of them. Bytes are the plain binary format. Events of older schema versions are read
 * with the current schema, as Protobuf intends, unless an older one is named for them.
 */
import {
  create,
  fromBinary,
  isMessage,
  toBinary,
  type DescMessage,
  type MessageInitShape,
  type MessageShape,
} from '@bufbuild/protobuf'
import { resolveBudget, type Budget } from '../core/encoding/budget.ts'
import type { Codec } from '../core/encoding/codec.ts'
import { errorMessage, WaybillError } from '../core/errors.ts'
import { refuseUnknown } from '../core/options.ts'
import { assertProtobufBudget } from './protobuf-budget.ts'
import { messageProblems } from './protobuf-check.ts'

export interface ProtobufOptions {
  /** Schemas of older schema versions, by version, where the current one cannot read what they wrote. @default {} */
  readonly versions?: Readonly<Record<number, DescMessage>>
  /** Values in one payload: fields, and items of lists and maps, at all levels. @default 250_000 */
  readonly maxValues?: number
}

export const protobufContentType = 'application/protobuf'

/** Protobuf, by a generated message schema. */
export function protobuf<Desc extends DescMessage>(
  schema: Desc,
  options: ProtobufOptions = {},
): Codec<MessageInitShape<Desc>, MessageShape<Desc>> {
  refuseUnknown('protobuf', options, ['versions', 'maxValues'])
  if (schema?.kind !== 'message') {
    throw new WaybillError('INVALID_OPTION', 'protobuf: pass a message schema that protobuf-es generated, such as VideoSchema.')
  }
  const { versions = {}, maxValues } = options
  const budget = resolveBudget('protobuf', maxValues === undefined ? {} : { maxValues })
  const validate = (data: unknown): MessageShape<Desc> => {
    const problems = messageProblems(schema, data)
    if (problems.length > 0) throw misfit(schema, problems.slice(0, 5).join('; '))
    if (isMessage(data, schema)) return data
    return create(schema, data as MessageInitShape<Desc>)
  }
  return {
    contentType: protobufContentType,
    validate,
    encode: (data) => {
      const message = validate(data)
      const bytes = write(schema, message)
      assertProtobufBudget(schema, bytes, budget)
      return bytes
    },
    decode: (bytes, schemaVersion) => {
      const writer = versions[schemaVersion ?? 0] ?? schema
      const message = read(writer, bytes, budget)
      const problems = messageProblems(writer, message)
      if (problems.length > 0) throw misfit(writer, problems.slice(0, 5).join('; '))
      return message
    },
  }
}

function write<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): Uint8Array {
  try {
    return toBinary(schema, message)
  } catch (cause) {
    throw misfit(schema, errorMessage(cause), cause)
  }
}

function read(schema: DescMessage, bytes: Uint8Array, budget: Budget): unknown {
  assertProtobufBudget(schema, bytes, budget)
  try {
    return fromBinary(schema, bytes, { readUnknownFields: false })
  } catch (cause) {
    throw new WaybillError('INVALID_INPUT', `The payload is no ${schema.typeName}: ${errorMessage(cause)}`, { cause })
  }
}

function misfit(schema: DescMessage, why: string, cause?: unknown): WaybillError {
  return new WaybillError('INVALID_INPUT', `The data is no ${schema.typeName}: ${why}.`, { cause })
}
