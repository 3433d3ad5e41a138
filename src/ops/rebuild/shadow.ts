/**
 * The shadow tables of a rebuild: made like the live ones, filled under other names, and swapped in by renaming.
 *
 * A swap is one transaction. Writers of the live tables wait for it, readers see the old rows until it commits and the new
 * ones after that. Views are made again on the new table; what could not follow the name is refused before any work is done.
 */
import type { Routes, StreamRoutes } from '../../consumer/model/routes.ts'
import { WaybillError } from '../../core/errors.ts'
import { execute, rows, type Queryable, type Tx } from '../../postgres/query/database.ts'
import { qualifiedName } from '../../postgres/query/sql.ts'
import type { Projection } from '../../projection/projection.ts'
import { findNames, findStorage } from './names.sql.ts'
import {
  compareShapes,
  compareTables,
  createShadow,
  findAccess,
  findObstacles,
  findViews,
  renameTable,
  sampleDifferences,
  type ShapeRow,
} from './tables.sql.ts'

/** A projection's table, the one that replaces it, and the name that the replaced one gets. */
export interface Shadow {
  readonly live: Projection
  readonly shadow: Projection
  readonly oldTable: string
  /** What the names of its indexes, constraints and statistics get, to make room for those of the new table. */
  readonly oldSuffix: string
}

export function shadowsOf({ projections }: Routes, generation: number): readonly Shadow[] {
  const oldSuffix = `_before_g${generation}`
  return projections.map((live) => {
    const tableText = renamed(live.tableText, `_g${generation}`)
    return {
      live,
      shadow: { ...live, table: qualifiedName(tableText), tableText },
      oldTable: renamed(live.tableText, oldSuffix),
      oldSuffix,
    }
  })
}

/** What the consumer does, as far as it concerns projections, with the shadows in place of the live tables. */
export function shadowRoutes(routes: Routes, shadows: readonly Shadow[]): Routes {
  const replaced = new Map(shadows.map(({ live, shadow }) => [live, shadow]))
  const types = new Map(shadows.map(({ live }) => [live.stream.aggregateType, live.stream]))
  const stream = (aggregateType: string): StreamRoutes | undefined => {
    const found = routes.stream(aggregateType)
    if (found === undefined || !types.has(aggregateType)) return undefined
    return {
      ...found,
      // Handlers are not called again, and so nothing has to wait for its predecessor.
      sequential: false,
      route: (eventType) => {
        const route = found.route(eventType)
        if (route === undefined) return undefined
        const shadowed = route.projections.flatMap((each) => replaced.get(each) ?? [])
        return { ...route, handler: undefined, projections: shadowed, factTables: [] }
      },
    }
  }
  return {
    ...routes,
    topics: [...new Set([...types.values()].map(({ topic }) => topic))],
    types: [...types.keys()],
    sequentialTypes: [],
    standing: [],
    handledTypes: [],
    projections: shadows.map(({ shadow }) => shadow),
    factTables: [],
    hasHandlers: false,
    stream,
  }
}

/** Makes the shadows, open to whom the live tables are. REFUSED if something hangs on a live table that could not follow. */
export async function createShadows(tx: Tx, shadows: readonly Shadow[]): Promise<void> {
  for (const { live, shadow } of shadows) {
    await refuseObstacles(tx, live)
    await execute(tx, createShadow(live.tableText, shadow.tableText))
    await runAll(tx, await rows(tx, findStorage(live.tableText, shadow.tableText)))
    await runAll(tx, await rows(tx, findAccess(live.tableText, shadow.tableText)))
  }
}

/**
 * Gives the shadows the names of the live tables, and their parts those of theirs. What hangs on those, what they look like and who may use them is looked at
 * again: hours may lie between. REFUSED if a migration has changed one meanwhile and not the other.
 */
export async function swapNames(tx: Tx, shadows: readonly Shadow[]): Promise<void> {
  // Whoever reads a view locks it before its table. So do we, or both would wait crosswise; the same definition again changes nothing.
  for (const { live } of shadows) await runAll(tx, await rows(tx, findViews(live.tableText)))
  for (const { live, shadow, oldTable, oldSuffix } of shadows) {
    await refuseObstacles(tx, live)
    await refuseOtherShape(tx, live.tableText, shadow.tableText)
    await runAll(tx, await rows(tx, findAccess(live.tableText, shadow.tableText)))
    await runAll(tx, await rows(tx, findNames(live.tableText, shadow.tableText, oldSuffix)))
    const views = await rows(tx, findViews(live.tableText))
    await execute(tx, renameTable(live.tableText, oldTable))
    await execute(tx, renameTable(shadow.tableText, live.tableText))
    await runAll(tx, views)
  }
}

export interface Comparison {
  readonly table: string
  readonly live: number
  readonly rebuilt: number
  /** Rows that only the live table has; rows that only the rebuilt one has. */
  readonly missing: number
  readonly extra: number
  /** Rows of which the rebuilt table has an older version; a newer one. */
  readonly older: number
  readonly newer: number
  /** Rows of the same version with other contents. */
  readonly different: number
  readonly checksumsMatch: boolean
  /** Some of the rows that differ. */
  readonly samples: readonly { readonly live: string | null; readonly rebuilt: string | null }[]
}

const samples = 5

/** Row counts, checksums and a few differences of each table. */
export async function compareShadows(db: Queryable, shadows: readonly Shadow[]): Promise<readonly Comparison[]> {
  const found: Comparison[] = []
  for (const { live, shadow } of shadows) {
    const [counted] = await rows(db, compareTables(live, shadow.tableText))
    if (counted === undefined) continue
    const { live_checksum: liveChecksum, rebuilt_checksum: rebuiltChecksum, ...counts } = counted
    const checksumsMatch = liveChecksum === rebuiltChecksum
    const differing = checksumsMatch ? [] : await rows(db, sampleDifferences(live, shadow.tableText, samples))
    found.push({ table: live.tableText, ...counts, checksumsMatch, samples: differing })
  }
  return found
}

async function runAll(tx: Tx, statements: readonly { readonly statement: string }[]): Promise<void> {
  for (const { statement } of statements) await tx.query(statement)
}

/** The same schema, a longer name; Postgres cuts off what is behind 63 characters, and so do we, before the suffix. */
function renamed(table: string, suffix: string): string {
  const parts = table.split('.')
  const last = parts.pop() ?? table
  return [...parts, `${last.slice(0, 63 - suffix.length)}${suffix}`].join('.')
}

async function refuseObstacles(tx: Tx, { tableText: table }: Projection): Promise<void> {
  const obstacles = (await rows(tx, findObstacles(table))).map(({ what }) => what)
  if (obstacles.length === 0) return
  throw new WaybillError(
    'REFUSED',
    `${table} cannot be replaced by another table, because these would stay with the old one: ${obstacles.join(', ')}. Remove them for the time of the rebuild.`,
    { details: { table, obstacles } },
  )
}

/** Nobody changes the live table meanwhile: its writers are locked out, and so are migrations. */
async function refuseOtherShape(tx: Tx, table: string, shadow: string): Promise<void> {
  const found = await rows(tx, compareShapes(table, shadow))
  if (found.length === 0) return
  const only = (owner: ShapeRow['owner']): readonly string[] => found.flatMap((row) => (row.owner === owner ? row.what : []))
  const [onlyLive, onlyShadow] = [only('live'), only('shadow')]
  const differences = [
    ...(onlyLive.length > 0 ? [`only ${table} has ${onlyLive.join(', ')}`] : []),
    ...(onlyShadow.length > 0 ? [`only ${shadow} has ${onlyShadow.join(', ')}`] : []),
  ]
  throw new WaybillError(
    'REFUSED',
    `${table} is not what it was when its rebuild began: ${differences.join('; ')}. Nothing was swapped. Do to ${shadow} what was done to ${table} and go on; or abandon the rebuild and begin again, so that its rows are written anew.`,
    { details: { table, onlyLive, onlyShadow } },
  )
}
