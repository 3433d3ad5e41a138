/**
 * The JSON body of a Fetch request, read with a bound: what is larger is refused before it is all in memory.
 */
import { decodeJson } from '../core/codec.ts'
import { WaybillError } from '../core/errors.ts'

/** The body's value, `undefined` if it is empty. TOO_LARGE beyond `maxBytes`; INVALID_INPUT if it is not JSON. */
export async function readJson(request: Request, maxBytes: number): Promise<unknown> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of request.body ?? []) {
    bytes += chunk.byteLength
    if (bytes > maxBytes) throw new WaybillError('TOO_LARGE', `The body has more than ${maxBytes} bytes.`)
    chunks.push(chunk)
  }
  return bytes === 0 ? undefined : decodeJson(Buffer.concat(chunks))
}
