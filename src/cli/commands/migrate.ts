/**
 * `waybill migrate …`: makes the schema, says what state it is in, prints it as SQL, and adopts a copied database.
 */
import { withDatabase } from '../../ops/connect/with-database.ts'
import { closeDatabase, closingSql } from '../../ops/doctor/close-database.ts'
import { schemaReport, type SchemaReport } from '../../ops/connect/schema-report.ts'
import { WaybillError } from '../../core/errors.ts'
import { adoptDeployment } from '../../postgres/schema/deployment.ts'
import { exportSql, pendingSql } from '../../postgres/schema/export.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { exitCodes, type Command, type CommandContext, type CommandResult } from '../frame/command.ts'
import { databaseOptions, namesOptions } from '../frame/settings.ts'
import { withSchema } from '../frame/open-schema.ts'
import { whoMayMigrate } from '../../ops/connect/role-hints.ts'

const roles = {
  type: 'boolean',
  help: 'also make the database roles <schema>_<service>_app, _relay, _consumer, _readonly, _payloads, _owner',
} as const

export const migrateUp: Command = {
  summary: 'Bring the database schema up to date',
  details: [
    'Any number of processes may run this at once; a second run changes nothing. Exit code',
    `${exitCodes.checkFailed} if roles were asked for and the schema has none because a newer waybill made it.`,
  ],
  options: { ...databaseOptions, roles, 'dry-run': { type: 'boolean', help: 'print the SQL instead of running it' } },
  whoMay: whoMayMigrate,
  async run({ values, settings, stopSignal, note }) {
    const names = settings.names()
    const asked = values['roles'] === true ? true : undefined
    return await withDatabase(settings.databaseUrl(), async (db) => {
      if (values['dry-run'] === true) {
        const { pending, newer, sql } = await pendingSql(db, { ...names, roles: asked })
        if (asked === true && newer.length > 0) note(rolesLeft(newer))
        return {
          text: sql === '' ? '-- The schema is up to date.' : sql,
          data: { pending: pending.map(({ name }) => name), newer, sql },
        }
      }
      const result = await migrate(db, { ...names, roles: asked, signal: stopSignal() })
      if (asked === true && result.newer.length > 0) note(rolesLeft(result.newer))
      else if (!result.roles) note('No database roles were made; for least privilege run this with --roles.')
      const text = result.applied.length === 0 ? 'The schema is up to date.' : `Applied ${result.applied.join(', ')}.`
      const exitCode = asked === true && !result.roles ? exitCodes.checkFailed : exitCodes.ok
      return { text, data: { schema: names.schema, service: names.service, ...result }, exitCode }
    })
  },
}

function rolesLeft(newer: readonly string[]): string {
  return `No database roles were made or changed: a newer waybill applied ${newer.join(', ')}. Run this with that one or a later one, which knows what they may do.`
}

export const migrateStatus: Command = {
  summary: 'Say whether a process could work on the schema',
  details: [`Exit code ${exitCodes.checkFailed} if it could not; the text says why and what to do.`],
  options: databaseOptions,
  run: async ({ settings }) =>
    await withDatabase(settings.databaseUrl(), async (db) => {
      const report = await schemaReport(db, settings.knownNames())
      return {
        text: reportText(report),
        data: report,
        exitCode: report.state === 'current' ? exitCodes.ok : exitCodes.checkFailed,
      }
    }),
}

export const migrateSql: Command = {
  summary: 'Print the schema as one SQL script, for an administrator or a migrations folder',
  details: [
    'Needs no database. `waybill migrate up` finds nothing to do after the script was run.',
    'A schema that has its database roles needs --roles each time: who owns and may use what is new is in the script only then.',
  ],
  options: { ...namesOptions(), roles, after: { type: 'string', value: '<number>', help: 'start behind this migration [0]' } },
  async run({ values, settings }) {
    const after = Number(values['after'] ?? 0)
    if (!Number.isSafeInteger(after) || after < 0)
      throw new WaybillError('INVALID_OPTION', '--after needs the number of a migration, such as 2.')
    const sql = exportSql({ ...settings.names(), after, roles: values['roles'] === true })
    return { text: sql, data: { sql } }
  },
}

export const migrateRoles: Command = {
  summary: 'Close the database to logins that are in none of its roles',
  details: [
    'Each login of a server may connect to every database of it unless that is taken away. Only the owner of the database can, and other',
    'programs that use it need a grant of their own afterwards. A migration never does this.',
  ],
  options: {
    ...databaseOptions,
    print: { type: 'boolean', help: 'print the SQL' },
    'revoke-connect': { type: 'boolean', help: 'run it' },
  },
  async run({ values, settings, user }) {
    const [print, revoke] = [values['print'] === true, values['revoke-connect'] === true]
    if (print === revoke) throw new WaybillError('INVALID_OPTION', 'Pass either --print or --revoke-connect.')
    return await withSchema(settings, async (db, schema) => {
      const { database, sql } = await closingSql(db, schema)
      if (print) return { text: sql, data: { database, sql } }
      await closeDatabase(db, { schema, actor: user })
      return {
        text: `Only members of the roles of "${schema}" may connect to the database "${database}" now.`,
        data: { database, sql },
      }
    })
  },
}

export const migrateAdopt: Command = {
  summary: 'Let a copied or restored database run here',
  details: [
    'Binds the schema to this database, under a new deployment id unless one is given. Its unpublished events will be',
    'published from here: make sure that the original does not run any more, or that this one has topics of its own.',
  ],
  options: { ...databaseOptions, yes: { type: 'boolean', help: 'do it; without this it is only explained' } },
  async run(context) {
    const { values, settings, user } = context
    const names = settings.names()
    return await withDatabase(settings.databaseUrl(), async (db) => {
      if (values['yes'] !== true) return await explainAdoption(context, await schemaReport(db, names))
      const { before, deploymentId } = await adoptDeployment(db, { ...names, actor: user })
      const text = `The schema "${names.schema}" is bound to this database as deployment "${deploymentId}" (before: "${before.deploymentId}").`
      return { text, data: { schema: names.schema, deploymentId, before: before.deploymentId } }
    })
  },
}

async function explainAdoption({ note }: CommandContext, report: SchemaReport): Promise<CommandResult> {
  note('Nothing was changed. To bind this schema to this database, run the same with --yes.')
  return { text: reportText(report), data: report, exitCode: exitCodes.refused }
}

function reportText({ schema, state, problem, service, deploymentId, applied, pending }: SchemaReport): string {
  const owner = service === undefined ? '' : `, service ${service}, deployment ${deploymentId}`
  const lines = applied.map(({ name, appliedAt, appliedBy }) => `  applied  ${name}  ${appliedAt}  by waybill ${appliedBy}`)
  return [
    `${schema}: ${state}${owner}`,
    ...lines,
    ...pending.map((name) => `  pending  ${name}`),
    ...(problem === undefined ? [] : [problem]),
  ].join('\n')
}
