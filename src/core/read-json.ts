/**
 * The JSON body of a Fetch request, read with a bound: what is larger is refused before it is all in memory.
 */
import { decodeJson } from './codec.ts'
import { WaybillError } from './errors.ts'

/** The body's value, `undefined` if it is empty. TOO_LARGE beyond `maxBytes`; INVALID_INPUT if it is not JSON. */
export async function readJson(request: Request, maxBytes: number): Promise<unknown> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of request.body ?? []) {
    bytes += chunk.byteLength
    if (bytes > maxBytes) throw tooLarge(maxBytes)
    chunks.push(chunk)
  }
  return bytes === 0 ? undefined : decodeJson(Buffer.concat(chunks))
}

/** The same of a body that somebody has read before. */
export function parseJson(text: string, maxBytes: number): unknown {
  const bytes = Buffer.from(text)
  if (bytes.length > maxBytes) throw tooLarge(maxBytes)
  return bytes.length === 0 ? undefined : decodeJson(bytes)
}

function tooLarge(maxBytes: number): WaybillError {
  return new WaybillError('TOO_LARGE', `The body has more than ${maxBytes} bytes.`)
}
