/** Columns of items as array literals, for `unnest`. */
import { eventHash } from '../../core/event/content-hash.ts'
import { voidEventType } from '../../core/event/event.ts'
import { sqlArray } from '../../postgres/query/sql.ts'
import type { Item } from '../model/batch-item.ts'

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

/** The hashes of contents as bytes. A void has none: it stands in for an event that an operator skipped, under that one's id. */
export function contentHashes(items: readonly Pick<Item, 'event' | 'message'>[]): string {
  return `{${items.map((item) => (hasContent(item) ? `"\\\\x${contentHashOf(item)}"` : 'NULL')).join(',')}}`
}

export function hasContent({ event }: Eventful): boolean {
  return event.type !== voidEventType
}

/** Of a fact what its sender says. */
function contentHashOf({ event, message }: Pick<Item, 'event' | 'message'>): string {
  if (event.contentHash !== undefined) return event.contentHash
  const { key, type, version, schemaVersion } = event
  return eventHash(`${key}\u0000${type}\u0000${version} ${schemaVersion} `, message.body)
}

export function versions(items: readonly Eventful[]): string {
  return sqlArray(items.map(({ event }) => event.version))
}
