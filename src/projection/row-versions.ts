/**
 * Versions out of projected rows, for consumers that keep positions only where order needs them: a row is as far as its own
 * version says. A tombstone keeps its row, so a deleted aggregate has a version too.
 */
import type { Version } from '../core/event/version.ts'
import { rows, type Queryable } from '../postgres/query/database.ts'
import { isRefusedValue } from '../postgres/query/sql-state.ts'
import type { Projection } from './projection.ts'
import { readVersions, type AggregateName, type RowOf } from './reads.sql.ts'

export interface RowVersionsDeps {
  readonly db: Queryable
  readonly projections: () => readonly Projection[]
}

/** Where the aggregate is projected to: every projection of its stream gets its row in the same transaction. */
export function rowOf(projections: readonly Projection[], { aggregateType, aggregateId }: AggregateName): RowOf | undefined {
  const projection = projections.find(({ stream }) => stream.aggregateType === aggregateType)
  return projection === undefined ? undefined : { projection, key: projection.keyOf(aggregateId) }
}

/** Raises versions, which stand at the places of their aggregates, to what the rows have: one statement a table. */
export async function raiseToRows(
  { db, projections }: RowVersionsDeps,
  aggregates: readonly AggregateName[],
  versions: (Version | undefined)[],
): Promise<void> {
  const all = projections()
  const byTable = new Map<Projection, { readonly place: number; readonly key: readonly string[] }[]>()
  for (const [place, aggregate] of aggregates.entries()) {
    const row = rowOf(all, aggregate)
    if (row === undefined) continue
    const wanted = byTable.get(row.projection)
    if (wanted === undefined) byTable.set(row.projection, [{ place, key: row.key }])
    else wanted.push({ place, key: row.key })
  }
  for (const [projection, wanted] of byTable) {
    const keys = wanted.map(({ key }) => key)
    for (const { place, version } of await versionsOf(db, projection, keys)) {
      const at = wanted[place - 1]?.place
      if (at !== undefined) versions[at] = newer(versions[at] ?? 0n, BigInt(version))
    }
  }
}

export function newer(a: Version, b: Version): Version {
  return a > b ? a : b
}

type Found = readonly { readonly place: number; readonly version: string }[]

/** A key that is no value of its column, out of a token that somebody made up, must not fail the look for everybody. */
async function versionsOf(db: Queryable, projection: Projection, keys: readonly (readonly string[])[]): Promise<Found> {
  try {
    return await rows(db, readVersions(projection, keysJson(projection, keys)))
  } catch (error) {
    if (!isRefusedValue(error)) throw error
  }
  const found: { readonly place: number; readonly version: string }[] = []
  if (keys.length === 1) return found
  // Halves, so that a few bad ones among many cost a few statements.
  const middle = Math.ceil(keys.length / 2)
  found.push(...(await versionsOf(db, projection, keys.slice(0, middle))))
  for (const { place, version } of await versionsOf(db, projection, keys.slice(middle)))
    found.push({ place: place + middle, version })
  return found
}

/** In the order given, because an answer names its key by the place. */
function keysJson({ keyColumns }: Projection, keys: readonly (readonly string[])[]): string {
  return JSON.stringify(keys.map((key) => Object.fromEntries(keyColumns.map((column, i) => [column, key[i]]))))
}
