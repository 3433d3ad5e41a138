/**
 * The migrations as one SQL script, for administrators who run SQL themselves and for folders such as
 * supabase/migrations.
 *
 * Running it leaves exactly what `migrate` leaves, record of migrations and binding included, so that `migrate` finds
 * nothing to do afterwards. It holds the same lock once the schema is there, and it is one transaction unless a migration cannot be in one.
 * `exportSql` knows no database and is told what that has; `pendingSql` looks.
 */
import { WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import type { Queryable } from '../query/database.ts'
import { checkedNames, type DeploymentNames } from './deployment-names.ts'
import { createSchema, insertApplied, limitLockWait, stampDeployment, waitForMigrationLock } from './migrate.sql.ts'
import { packageVersion, renderMigration, shippedMigrations, type Migration } from './migration-files.ts'
import { migrationStatus } from './status.ts'
import { assertMayMigrate, mayGrant } from './migrate.ts'
import { applyRoles, lockSchemaDown } from './roles.sql.ts'
import type { SqlValue, Statement } from '../query/sql.ts'

export interface ExportSqlOptions extends DeploymentNames {
  /** Make the schema's database roles and their grants; a schema that has roles needs this behind `after`, too. @default false */
  readonly roles?: boolean
  /** The number of the last migration that the database has: the script starts behind it. @default 0 */
  readonly after?: number
  /** @default those of this package */
  readonly migrations?: readonly Migration[]
}

/** The script; empty if there is nothing behind `after` and no roles are asked for. */
export function exportSql(options: ExportSqlOptions): string {
  refuseUnknown('exportSql', options, ['schema', 'service', 'deploymentId', 'roles', 'after', 'migrations'])
  const { roles = false, after = 0, migrations = shippedMigrations() } = options
  const chosen = migrations.filter(({ number }) => number > after)
  return script({ names: checkedNames(options), chosen, roles, isNew: after === 0, isStamped: after !== 0 })
}

export interface PendingSqlOptions extends Omit<ExportSqlOptions, 'after' | 'roles'> {
  /** Make the schema's database roles and their grants. @default true if an earlier run made them and something is pending, else false */
  readonly roles?: boolean | undefined
}

/** What `migrate` would do now, as a script: empty if it would do nothing. Refuses what `migrate` refuses. */
export async function pendingSql(
  db: Queryable,
  options: PendingSqlOptions,
): Promise<{ readonly pending: readonly Migration[]; readonly newer: readonly string[]; readonly sql: string }> {
  const { migrations = shippedMigrations() } = options
  const names = checkedNames(options)
  const status = await migrationStatus(db, { schema: names.schema, migrations })
  assertMayMigrate(status, { names, migrations })
  const { pending, newer, managed, installed, deployment } = status
  const roles = mayGrant(status) && (options.roles ?? (managed && pending.length > 0))
  const sql = script({ names, chosen: pending, roles, isNew: !installed, isStamped: deployment !== undefined })
  return { pending, newer, sql }
}

interface Script {
  readonly names: DeploymentNames
  readonly chosen: readonly Migration[]
  readonly roles: boolean
  readonly isNew: boolean
  readonly isStamped: boolean
}

function script({ names, chosen, roles, isNew, isStamped }: Script): string {
  const { schema, service, deploymentId } = names
  if (chosen.length === 0 && !roles) return ''
  const opening = `begin;\n${literal(limitLockWait())}\n`
  const begin = `${opening}${literal(waitForMigrationLock(schema))}\n`
  return [
    `-- Waybill ${packageVersion()}: the schema "${schema}" of the service "${service}".\n-- By hand: psql -v ON_ERROR_STOP=1 -f <this file>\n`,
    // A new schema has no row to lock: the second of two scripts at once fails and changes nothing.
    isNew ? opening : begin,
    isNew ? `${literal(createSchema(schema, 'if-missing'))}\n` : '',
    ...chosen.flatMap((migration) => section(migration, schema, begin)),
    isStamped ? '' : `${literal(stampDeployment(schema, service, deploymentId))}\n`,
    lockSchemaDown(schema),
    roles ? applyRoles(names) : '',
    'commit;\n',
  ]
    .filter((part) => part !== '')
    .join('\n')
}

/** A migration and the record of it. One that cannot be in a transaction ends the one before and opens the next. */
function section(migration: Migration, schema: string, begin: string): string[] {
  const text = `-- ${migration.name}\n${renderMigration(migration, schema)}`
  const record = `${literal(insertApplied(schema, { ...migration, applied_by: packageVersion() }))}\n`
  return migration.transactional ? [text, record] : ['commit;\n', text, begin, record]
}

/** A statement with its values written into it. They are ours: names and numbers that were checked. */
function literal({ text, values }: Statement): string {
  const filled = text.replaceAll(/\$(\d+)/g, (_, index: string) => literalValue(values[Number(index) - 1] ?? null))
  return `${filled.replaceAll(/^\s*\n|\s+$/g, '').replaceAll(/^ {4}/gm, '')};`
}

function literalValue(value: SqlValue): string {
  if (value === null) return 'null'
  if (typeof value === 'string') return `'${value.replaceAll("'", "''")}'`
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  throw new WaybillError('INTERNAL', 'Bytes cannot be written into a script.')
}
