/**
 * Headers as Node's HTTP server shows them.
 */

export type NodeHeaders = Readonly<Record<string, string | string[] | undefined>>

/** A header by its name in lower case; several of one name joined, as Fetch does it. */
export function headerOf(headers: NodeHeaders, name: string): string | undefined {
  const value = headers[name]
  return Array.isArray(value) ? value.join(', ') : value
}
