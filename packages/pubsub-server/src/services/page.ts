/** Lists in pages, by name. A page token is the name the next page starts after, so it survives changes between pages. */
import { invalid } from '../model/rpc-error.ts'

export interface PageRequest {
  readonly pageSize?: number
  readonly pageToken?: string
}

const defaultSize = 100
const maxSize = 1000

export function pageOf<Item>(
  items: Iterable<Item>,
  nameOf: (item: Item) => string,
  request: PageRequest,
): { readonly items: Item[]; readonly nextPageToken: string } {
  const { pageSize = 0, pageToken = '' } = request
  if (pageSize < 0) throw invalid(`Invalid page_size ${pageSize}: it must not be negative.`)
  const after = pageToken === '' ? '' : decodeToken(pageToken)
  const size = pageSize === 0 ? defaultSize : Math.min(pageSize, maxSize)
  const rest = [...items].filter((item) => nameOf(item) > after).toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1))
  const page = rest.slice(0, size)
  const last = page.at(-1)
  const hasMore = rest.length > page.length && last !== undefined
  return { items: page, nextPageToken: hasMore ? encodeToken(nameOf(last)) : '' }
}

function encodeToken(name: string): string {
  return Buffer.from(`after:${name}`).toString('base64url')
}

function decodeToken(token: string): string {
  const text = Buffer.from(token, 'base64url').toString()
  if (!text.startsWith('after:')) throw invalid('Invalid page token given. Use the next_page_token of an earlier answer.')
  return text.slice('after:'.length)
}
