/**
 * The JSON body of a Fetch request, read with bounds: what is larger is refused before it is all in memory, what stands for too
 * many values before it is parsed, and so is what would change by being read.
 */
import { bodyBudget } from './budget.ts'
import { WaybillError } from '../errors.ts'
import { parseExactJson } from './exact-json.ts'

/** The body's value, `undefined` if it is empty. TOO_LARGE beyond `maxBytes` or their budget; INVALID_INPUT if it is not JSON. */
export async function readJson(request: Request, maxBytes: number): Promise<unknown> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of request.body ?? []) {
    bytes += chunk.byteLength
    if (bytes > maxBytes) throw tooLarge(maxBytes)
    chunks.push(chunk)
  }
  return bytes === 0 ? undefined : parseExactJson(decodeUtf8(Buffer.concat(chunks)), bodyBudget(maxBytes))
}

/** The same of a body that somebody has read before. */
export function parseJson(text: string, maxBytes: number): unknown {
  if (Buffer.byteLength(text) > maxBytes) throw tooLarge(maxBytes)
  return text === '' ? undefined : parseExactJson(text, bodyBudget(maxBytes))
}

const decoder = new TextDecoder('utf-8', { fatal: true })

/** The text of bytes; INVALID_INPUT if they are no UTF-8. */
export function decodeUtf8(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes)
  } catch (cause) {
    throw new WaybillError('INVALID_INPUT', 'The body is not UTF-8 text.', { cause })
  }
}

function tooLarge(maxBytes: number): WaybillError {
  return new WaybillError('TOO_LARGE', `The body has more than ${maxBytes} bytes.`)
}
