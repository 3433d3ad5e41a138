/** The command that hands an outbox over to a connector, or back, as operators are told to run it. */

/** With the schema that is meant, whatever the shell and the configuration say: run in another one, it would switch another outbox. */
export function cdcCommand(schema: string, words: string): string {
  return `waybill outbox cdc ${words} --schema ${schema}`
}
