/**
 * Headers as Node's HTTP server and as Fetch show them.
 */

export type NodeHeaders = Readonly<Record<string, string | string[] | undefined>>

/** A header by its name in lower case; several of one name joined, as Fetch does it. */
export function headerOf(headers: NodeHeaders, name: string): string | undefined {
  const value = headers[name]
  return Array.isArray(value) ? value.join(', ') : value
}

/** A header of a Fetch request by its name in lower case; its host also where only the address has it. */
export function requestHeader({ headers, url }: Request): (name: string) => string | undefined {
  return (name) => headers.get(name) ?? (name === 'host' ? new URL(url).host : undefined)
}
