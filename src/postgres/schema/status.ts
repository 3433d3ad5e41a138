/**
 * What a database's schema is, compared with what this package ships. Reads only; every refusal is made from this.
 */
import { refuseUnknown } from '../../core/options.ts'
import { first, one, rows, type Queryable } from '../query/database.ts'
import { inspectSchema, selectApplied, selectDeployment } from './migrate.sql.ts'
import { shippedMigrations, type Migration } from './migration-files.ts'
import { checkedSchema } from './deployment-names.ts'
import { isOwnerRole } from './roles.ts'

export interface AppliedMigration {
  readonly number: number
  readonly name: string
  readonly checksum: string
  readonly breaking: boolean
  readonly appliedAt: string
  /** The version of the package that applied it. */
  readonly appliedBy: string
}

export interface DeploymentStamp {
  readonly service: string
  readonly deploymentId: string
  /** What told the database from its copies when it was stamped, and what does now. */
  readonly stampedOn: DatabaseIdentity
  readonly identity: DatabaseIdentity
}

/** `system` is null where the provider does not let us ask. */
export interface DatabaseIdentity {
  readonly system: string | null
  readonly database: string
  readonly table: string
}

export interface MigrationStatus {
  readonly schema: string
  /** Something has this schema's name. */
  readonly present: boolean
  /** Our tables are in it. */
  readonly installed: boolean
  /** Anything at all is in it. */
  readonly occupied: boolean
  /** It is owned by its own group role, also by one with a name of before, so each run refreshes the grants. */
  readonly managed: boolean
  readonly applied: readonly AppliedMigration[]
  readonly pending: readonly Migration[]
  /** The names of applied migrations that this package does not know: they are a newer one's. */
  readonly newer: readonly string[]
  readonly deployment: DeploymentStamp | undefined
}

export interface MigrationStatusOptions {
  readonly schema: string
  /** @default those of this package */
  readonly migrations?: readonly Migration[]
}

/** Reads what is there. A schema that does not exist is a status like any other. */
export async function migrationStatus(db: Queryable, options: MigrationStatusOptions): Promise<MigrationStatus> {
  refuseUnknown('migrationStatus', options, ['schema', 'migrations'])
  const schema = checkedSchema(options.schema)
  const migrations = options.migrations ?? shippedMigrations()
  const { owner, ...found } = await one(db, inspectSchema(schema))
  if (!found.installed)
    return { schema, ...found, managed: false, applied: [], pending: migrations, newer: [], deployment: undefined }
  const applied = (await rows(db, selectApplied(schema))).map(({ applied_at, applied_by, ...row }) => ({
    ...row,
    appliedAt: applied_at,
    appliedBy: applied_by,
  }))
  const numbers = new Set(applied.map(({ number }) => number))
  const known = new Set(migrations.map(({ number }) => number))
  const deployment = await readDeployment(db, schema)
  return {
    schema,
    ...found,
    managed: deployment !== undefined && isOwnerRole({ schema, service: deployment.service }, owner),
    applied,
    pending: migrations.filter(({ number }) => !numbers.has(number)),
    newer: applied.filter(({ number }) => !known.has(number)).map(({ name }) => name),
    deployment,
  }
}

/** The migrations of this package that the database does not have yet. */
export async function pendingMigrations(db: Queryable, options: MigrationStatusOptions): Promise<readonly Migration[]> {
  return (await migrationStatus(db, options)).pending
}

async function readDeployment(db: Queryable, schema: string): Promise<DeploymentStamp | undefined> {
  const row = await first(db, selectDeployment(schema))
  if (row === undefined) return undefined
  return {
    service: row.service,
    deploymentId: row.deployment_id,
    stampedOn: JSON.parse(row.stamped_on) as DatabaseIdentity,
    identity: JSON.parse(row.identity) as DatabaseIdentity,
  }
}
