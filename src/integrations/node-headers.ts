/**
 * Headers as Node's HTTP server and as Fetch show them, and the end of a connection.
 */

export type NodeHeaders = Readonly<Record<string, string | string[] | undefined>>

/** A header by its name in lower case; several of one name joined, as Fetch does it. */
export function headerOf(headers: NodeHeaders, name: string): string | undefined {
  const value = headers[name]
  return Array.isArray(value) ? value.join(', ') : value
}

/** The part of Node's `ServerResponse` that tells of the end of its connection. */
export interface Closing {
  once?(event: 'close', listener: () => void): unknown
}

/** Aborts when the client has gone. It does so behind an answer, too: nothing waits any more by then. */
export function closedSignal(response: Closing | undefined): AbortSignal | undefined {
  if (response?.once === undefined) return undefined
  const closed = new AbortController()
  response.once('close', () => closed.abort())
  return closed.signal
}

/** A header of a Fetch request by its name in lower case; its host also where only the address has it. */
export function requestHeader({ headers, url }: Request): (name: string) => string | undefined {
  return (name) => headers.get(name) ?? (name === 'host' ? new URL(url).host : undefined)
}
