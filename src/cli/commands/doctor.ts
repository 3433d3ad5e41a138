/**
 * `waybill doctor`: says what is wrong with the schema, its outbox and what its consumers keep.
 */
import { doctorConsumers } from '../../ops/doctor/consumers.ts'
import { doctorOutbox } from '../../ops/doctor/outbox.ts'
import { doctorRoles } from '../../ops/doctor/roles.ts'
import { schemaReport } from '../../ops/connect/schema-report.ts'
import { withDatabase } from '../../ops/connect/with-database.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import { exitCodes, type Command } from '../frame/command.ts'
import { databaseOptions } from '../frame/settings.ts'
import { oneLine } from '../frame/text-table.ts'

export const doctor: Command = {
  summary: 'Say what is wrong with the schema, its roles, the outbox and the consumers',
  details: [`Exit code ${exitCodes.checkFailed} if anything is; each line says what, and what to do.`],
  options: databaseOptions,
  run: async ({ settings, note }) =>
    await withDatabase(settings.databaseUrl(), async (db) => {
      const names = settings.knownNames()
      const { problem } = await schemaReport(db, names)
      const roles = problem === undefined ? await doctorRoles(db, names.schema) : undefined
      const findings =
        roles === undefined
          ? [{ problem: 'schema', text: problem ?? '' }]
          : [
              ...(await doctorOutbox(db, createOutbox({ schema: names.schema }))),
              ...(await doctorConsumers(db, names.schema)),
              ...roles.findings,
            ]
      const openToPublic = roles?.openToPublic
      if (openToPublic !== undefined)
        note(
          `The database "${openToPublic}" is open to every login of the server (CONNECT for PUBLIC). See: waybill migrate roles --print`,
        )
      return {
        text: findings.length === 0 ? 'Nothing is wrong.' : findings.map(({ text }) => oneLine(text)).join('\n'),
        data: { findings, openToPublic: openToPublic !== undefined },
        exitCode: findings.length === 0 ? exitCodes.ok : exitCodes.checkFailed,
      }
    }),
}
