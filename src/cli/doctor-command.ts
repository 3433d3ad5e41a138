/**
 * `waybill doctor`: says what is wrong with the schema, its outbox and what its consumers keep.
 */
import { doctorConsumers } from '../ops/doctor-consumers.ts'
import { doctorOutbox } from '../ops/doctor-outbox.ts'
import { schemaReport } from '../ops/schema-report.ts'
import { withDatabase } from '../ops/with-database.ts'
import { createOutbox } from '../outbox/outbox.ts'
import { exitCodes, type Command } from './command.ts'
import { databaseOptions } from './settings.ts'
import { oneLine } from './text-table.ts'

export const doctor: Command = {
  summary: 'Say what is wrong with the schema, the outbox and the consumers',
  details: [`Exit code ${exitCodes.checkFailed} if anything is; each line says what, and what to do.`],
  options: databaseOptions,
  run: async ({ settings }) =>
    await withDatabase(settings.databaseUrl(), async (db) => {
      const names = settings.knownNames()
      const { problem } = await schemaReport(db, names)
      const findings =
        problem === undefined
          ? [...(await doctorOutbox(db, createOutbox({ schema: names.schema }))), ...(await doctorConsumers(db, names.schema))]
          : [{ problem: 'schema', text: problem }]
      return {
        text: findings.length === 0 ? 'Nothing is wrong.' : findings.map(({ text }) => oneLine(text)).join('\n'),
        data: { findings },
        exitCode: findings.length === 0 ? exitCodes.ok : exitCodes.checkFailed,
      }
    }),
}
