/**
 * How an event's data becomes bytes and data again. The port, and the codec that everybody starts with: JSON.
 *
 * Encoding validates, inside the business transaction: what cannot be read later must fail there, where the change can
 * still be refused. Bytes are stored and sent as they are; nothing between writer and reader re-encodes them.
 */
import { WaybillError } from './errors.ts'
import { describeIssues, type StandardSchema } from './standard-schema.ts'

export interface Codec<Input, Output = Input> {
  /** The MIME type that travels beside the bytes. */
  readonly contentType: string
  /** Validates and encodes; throws INVALID_INPUT when the data does not fit the schema. */
  encode(data: Input): Uint8Array | Promise<Uint8Array>
  /** Decodes what this codec once wrote, without validation: older versions are upcast first. */
  decode(bytes: Uint8Array): unknown
  /** Validates decoded data of the current schema version; throws INVALID_INPUT. */
  validate(data: unknown): Output | Promise<Output>
}

export const jsonContentType = 'application/json'

const decoder = new TextDecoder('utf-8', { fatal: true })
const encoder = new TextEncoder()

/** JSON, validated by any Standard Schema on both sides. */
export function jsonCodec<Input, Output>(schema: StandardSchema<Input, Output>): Codec<Input, Output> {
  const validate = (data: unknown): Output | Promise<Output> => {
    const result = schema['~standard'].validate(data)
    return result instanceof Promise ? result.then(accept) : accept(result)
  }
  return {
    contentType: jsonContentType,
    encode: (data) => {
      const valid = validate(data)
      return valid instanceof Promise ? valid.then(encodeJson) : encodeJson(valid)
    },
    decode: decodeJson,
    validate,
  }
}

/** JSON bytes of a value; INVALID_INPUT for what JSON cannot hold. */
export function encodeJson(value: unknown): Uint8Array {
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch (cause) {
    throw new WaybillError('INVALID_INPUT', 'The data cannot be written as JSON (a cycle or a bigint?). Convert bigints to text.', { cause })
  }
  if (text === undefined) throw new WaybillError('INVALID_INPUT', 'The data is undefined or a function: JSON cannot hold it. Use null or an object.')
  return encoder.encode(text)
}

/** The value of JSON bytes. Keys named `__proto__` are dropped: merged carelessly, they would change every object. */
export function decodeJson(bytes: Uint8Array): unknown {
  const text = decodeText(bytes)
  try {
    return /__proto__|\\u005f/i.test(text) ? JSON.parse(text, dropProto) : JSON.parse(text)
  } catch (cause) {
    throw new WaybillError('INVALID_INPUT', 'The payload is not JSON.', { cause })
  }
}

function decodeText(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes)
  } catch (cause) {
    throw new WaybillError('INVALID_INPUT', 'The payload is not UTF-8 text.', { cause })
  }
}

function dropProto(this: unknown, key: string, value: unknown): unknown {
  return key === '__proto__' ? undefined : value
}

function accept<Output>(result: { readonly issues?: readonly { readonly message: string }[] | undefined; readonly value?: Output }): Output {
  if (result.issues !== undefined) throw new WaybillError('INVALID_INPUT', `The data does not fit its schema: ${describeIssues(result.issues)}`)
  return result.value as Output
}
