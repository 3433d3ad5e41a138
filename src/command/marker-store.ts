/**
 * The second layer, and the truth: a row in Postgres that commits or rolls back with the command's effect.
 */
import { execute, first, rows, type Queryable, type Tx } from '../postgres/database.ts'
import {
  insertMarker,
  selectMarker,
  updateMarker,
  type CommandTables,
  type MarkerAnswer,
  type MarkerKey,
  type MarkerRow,
  type NewMarker,
} from './command.sql.ts'

export interface MarkerStore {
  /** Claims the request, as the first statement of the transaction; `false` if it was committed before. */
  insert(tx: Tx, marker: NewMarker): Promise<boolean>
  /** The marker, if its transaction has committed. */
  find(db: Queryable, key: MarkerKey): Promise<MarkerRow | undefined>
  /** Keeps the answer in the marker's row. */
  keep(tx: Tx, key: MarkerKey, answer: MarkerAnswer): Promise<void>
}

export function postgresMarkers(tables: CommandTables): MarkerStore {
  return {
    insert: async (tx, marker) => (await rows(tx, insertMarker(tables, marker))).length === 1,
    find: (db, key) => first(db, selectMarker(tables, key)),
    keep: async (tx, key, answer) => void (await execute(tx, updateMarker(tables, key, answer))),
  }
}
