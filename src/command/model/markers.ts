/**
 * The second layer, and the truth: a row in Postgres that commits or rolls back with the command's effect.
 */
import type { Aggregate, LockedAggregate } from './aggregate.ts'
import { execute, first, rows, type Queryable, type Tx } from '../../postgres/query/database.ts'
import {
  claimCommand,
  selectMarker,
  updateMarker,
  type CommandTables,
  type MarkerAnswer,
  type MarkerKey,
  type MarkerRow,
  type NewMarker,
  type VersionRow,
} from './command.sql.ts'

export interface MarkerStore {
  /**
   * Claims the request, as the first statement of the transaction, and locks the aggregates after that; returns their versions,
   * or `undefined` if the request was committed before.
   */
  claim(tx: Tx, marker: NewMarker, aggregates: readonly Aggregate[]): Promise<readonly LockedAggregate[] | undefined>
  /** The marker, if its transaction has committed. */
  find(db: Queryable, key: MarkerKey): Promise<MarkerRow | undefined>
  /** Keeps the answer in the marker's row. */
  keep(tx: Tx, key: MarkerKey, answer: MarkerAnswer): Promise<void>
}

export function postgresMarkers(tables: CommandTables): MarkerStore {
  return {
    claim: async (tx, marker, aggregates) => {
      const found = await rows(tx, claimCommand(tables, marker, aggregates))
      return found.length === 0 ? undefined : found.flatMap(lockedAggregate)
    },
    find: (db, key) => first(db, selectMarker(tables, key)),
    keep: async (tx, key, answer) => void (await execute(tx, updateMarker(tables, key, answer))),
  }
}

function lockedAggregate({ type, id, version }: VersionRow): LockedAggregate[] {
  return type === null || id === null || version === null ? [] : [{ type, id, version: BigInt(version) }]
}
