/**
 * The consistency token in HTTP headers, both ways: a write's answer carries it, and the next read shows it.
 *
 * Pure: it knows the shapes in which headers come (Fetch's `Headers`, Node's record, gRPC's `Metadata`), and nothing of a framework.
 */
import { WaybillError } from '../core/errors.ts'
import { tokenHeader } from '../core/event/token.ts'

/** Headers as Fetch and as Node have them, and metadata as gRPC has it. */
export type HeadersLike =
  | { get(name: string): string | null | readonly unknown[] }
  | Readonly<Record<string, string | readonly string[] | undefined>>

/** The token that a request or an answer carries, for `atLeast`; `undefined` if it carries none. INVALID_INPUT for more than one. */
export function readTokenHeader(headers: HeadersLike): string | undefined {
  const value = hasGet(headers) ? headers.get(tokenHeader) : headers[tokenHeader]
  const [token, ...more] = [value ?? []].flat().map(String)
  // Fetch joins repeated headers with a comma, which no token contains.
  if (more.length === 0 && token?.includes(',') !== true) return token?.trim() || undefined
  throw new WaybillError('INVALID_INPUT', `The header ${tokenHeader} came more than once. Send the newest token only.`)
}

/** The header for a token, to be spread into an answer's or a request's headers. Empty if there is none. */
export function writeTokenHeader(token: string | undefined): Readonly<Record<string, string>> {
  return token === undefined || token === '' ? {} : { [tokenHeader]: token }
}

function hasGet(headers: HeadersLike): headers is { get(name: string): string | null | readonly unknown[] } {
  return typeof headers['get'] === 'function'
}
