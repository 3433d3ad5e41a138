/** The command that hands an outbox over to a connector, or back, as operators are told to run it. */
import { defaults } from '../core/defaults.ts'

/** With the schema that is meant: run in another one, it would switch another outbox. */
export function cdcCommand(schema: string, words: string): string {
  return `waybill outbox cdc ${words}${schema === defaults.schema ? '' : ` --schema ${schema}`}`
}
