/** Columns of items as array literals, for `unnest`. */
import { sqlArray } from '../postgres/sql.ts'
import type { Item } from './item.ts'

type Eventful = Pick<Item, 'event'>

export function ids(items: readonly Eventful[]): string {
  return `{${items.map(({ event }) => event.id).join(',')}}`
}

export function aggregateTypes(items: readonly Eventful[]): string {
  return sqlArray(items.map(({ event }) => event.aggregateType))
}

export function aggregateIds(items: readonly Eventful[]): string {
  return sqlArray(items.map(({ event }) => event.aggregateId))
}

/** The hashes of facts as bytes; null where no item is one. */
export function contentHashes(items: readonly Eventful[]): string | null {
  if (items.every(({ event }) => event.contentHash === undefined)) return null
  return `{${items.map(({ event }) => (event.contentHash === undefined ? 'NULL' : `"\\\\x${event.contentHash}"`)).join(',')}}`
}

export function versions(items: readonly Eventful[]): string {
  return sqlArray(items.map(({ event }) => event.version))
}
