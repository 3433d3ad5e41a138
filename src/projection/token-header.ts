/**
 * The consistency token in HTTP headers, both ways: a write's answer carries it, and the next read shows it.
 *
 * Pure: it knows the two shapes in which headers come, Fetch's `Headers` and Node's record, and nothing of a framework.
 */
import { WaybillError } from '../core/errors.ts'
import { tokenHeader } from '../core/token.ts'

/** Headers as Fetch and as Node have them. */
export type HeadersLike = { get(name: string): string | null } | Readonly<Record<string, string | readonly string[] | undefined>>

/** The token that a request or an answer carries, for `atLeast`; `undefined` if it carries none. */
export function readTokenHeader(headers: HeadersLike): string | undefined {
  const value = isFetchHeaders(headers) ? headers.get(tokenHeader) : headers[tokenHeader]
  if (value === null || value === undefined || value === '') return undefined
  // Fetch joins repeated headers with a comma, which no token contains.
  if (typeof value === 'string' && !value.includes(',')) return value.trim()
  throw new WaybillError('INVALID_INPUT', `The header ${tokenHeader} came more than once. Send the newest token only.`)
}

/** The header for a token, to be spread into an answer's or a request's headers. Empty if there is none. */
export function writeTokenHeader(token: string | undefined): Readonly<Record<string, string>> {
  return token === undefined || token === '' ? {} : { [tokenHeader]: token }
}

function isFetchHeaders(headers: HeadersLike): headers is { get(name: string): string | null } {
  return typeof headers['get'] === 'function'
}
