/**
 * Whether a process may work on a schema, and the sentence that says what to do if not.
 *
 * Refused are: a schema that is missing, older, or newer in a way this package does not understand; migrations that are
 * not the ones we ship; another service's schema; and a copied or restored database. A copy holds the same unpublished
 * events as its original, so a relay on it would publish them a second time, perhaps from a test system into production. So are
 * sessions with settings under which the driver would change values.
 */
import { WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import { one, type Database, type Queryable } from '../query/database.ts'
import { checkedNames, type DeploymentNames } from './deployment-names.ts'
import { insertAudit, probeSession, restampDeployment } from './migrate.sql.ts'
import { packageVersion, shippedMigrations, type Migration } from './migration-files.ts'
import { migrationStatus, type DeploymentStamp, type MigrationStatus } from './status.ts'
import { shownGroupRole } from './roles.ts'
import { sqlState } from '../query/sql-state.ts'
import { transaction } from '../transaction/transaction.ts'

/** Throws SCHEMA_MISMATCH, MIGRATION_CHANGED, WRONG_DEPLOYMENT or REFUSED unless this process may work on the schema. Call it at start. */
export async function assertSchema(
  db: Queryable,
  given: Omit<DeploymentNames, 'service'> & {
    /** @default whichever the schema is bound to */ readonly service?: string | undefined
  },
): Promise<void> {
  const status = await readable(given, () => migrationStatus(db, { schema: given.schema }))
  const service = given.service ?? status.deployment?.service
  if (service === undefined) throw ofNobody(status)
  const names = checkedNames({ ...given, service })
  if (!status.installed) {
    throw new WaybillError(
      'SCHEMA_MISMATCH',
      `The schema "${names.schema}" of the service "${names.service}" is not in this database. ${runUp(names)}`,
    )
  }
  assertKnown(status, shippedMigrations())
  assertOwn(status, names)
  if (status.pending.length > 0) {
    const pending = status.pending.map((migration) => migration.name)
    throw new WaybillError(
      'SCHEMA_MISMATCH',
      `The schema "${names.schema}" is older than this process (waybill ${packageVersion()}); it lacks ${pending.join(', ')}. ${runUp(names)}`,
      { details: { pending } },
    )
  }
  await assertSession(db)
}

/** Settings under which values would change on their way, in silence. Which they are depends on the driver, so it is tried. */
async function assertSession(db: Queryable): Promise<void> {
  const { bytes, keeps_null } = await one(db, probeSession())
  if (Buffer.from(bytes).toString('hex') !== '005cff41') throw spoils('bytes', `bytea_output = 'hex'`)
  if (!keeps_null) throw spoils('NULL in arrays', `array_nulls = 'on'`)
}

function spoils(what: string, setting: string): WaybillError {
  return new WaybillError(
    'REFUSED',
    `The sessions of this process have a setting under which its driver changes ${what}. Set it for the role that it connects as: alter role … set ${setting}`,
  )
}

/** Nobody has told a name here, and one that we made up would be copied, and the schema bound to it for good. */
function ofNobody({ schema, installed }: MigrationStatus): WaybillError {
  const [code, what] = installed
    ? (['WRONG_DEPLOYMENT', 'belongs to no service yet'] as const)
    : (['SCHEMA_MISMATCH', 'is not in this database'] as const)
  return new WaybillError(code, `The schema "${schema}" ${what}. ${runUp({ schema, service: '<name of this service>' })}`)
}

/** Refuses migrations that are not the ones we know: those of an unreleased package, changed ones, and newer breaking ones. */
export function assertKnown({ schema, applied }: MigrationStatus, known: readonly Migration[]): void {
  const byNumber = new Map(known.map((migration) => [migration.number, migration]))
  for (const { number, name } of applied) {
    // A release never renames a migration, so another name under a number of ours was in no release.
    const ours = byNumber.get(number)?.name ?? name
    if (ours !== name) throw madeUnreleased(schema, name, ours)
  }
  for (const each of applied) {
    const ours = byNumber.get(each.number)
    if (ours === undefined && each.breaking) {
      throw new WaybillError(
        'SCHEMA_MISMATCH',
        `The schema "${schema}" is newer than this process (waybill ${packageVersion()}): ${each.name}, applied by waybill ${each.appliedBy}, is a breaking change. Upgrade this process to that version or later.`,
      )
    }
    if (ours !== undefined && ours.checksum !== each.checksum) {
      throw new WaybillError(
        'MIGRATION_CHANGED',
        `${each.name} was applied to the schema "${schema}" by waybill ${each.appliedBy}, but waybill ${packageVersion()} has another ${ours.name}. Use a released package; applied migrations never change.`,
      )
    }
  }
}

function madeUnreleased(schema: string, theirs: string, ours: string): WaybillError {
  return new WaybillError(
    'MIGRATION_CHANGED',
    `An unreleased version of Waybill made the schema "${schema}" (it has ${theirs} where waybill ${packageVersion()} has ${ours}), and no migration leads from there: ` +
      'drop it and run waybill migrate up, or, if you need what is in it, let its old processes drain it, run waybill migrate up --schema <another name>, and copy the rows that you keep.',
  )
}

/** Refuses another service's schema, another deployment's, and copies. */
export function assertOwn({ schema, deployment }: MigrationStatus, { service, deploymentId }: DeploymentNames): void {
  if (deployment === undefined)
    throw new WaybillError('WRONG_DEPLOYMENT', `The schema "${schema}" belongs to no service yet. ${runUp({ schema, service })}`)
  if (deployment.service !== service) {
    throw new WaybillError(
      'WRONG_DEPLOYMENT',
      `The schema "${schema}" belongs to the service "${deployment.service}", not to "${service}". Give each service a schema of its own (option schema), or correct the service's name.`,
    )
  }
  const pinned = deploymentId === undefined ? '' : ` --deployment-id ${deploymentId}`
  if (isCopy(deployment)) {
    throw new WaybillError(
      'WRONG_DEPLOYMENT',
      `This database is a copy or was restored: the schema "${schema}" was stamped elsewhere (deployment "${deployment.deploymentId}"), and its unpublished events may be published there. ` +
        `If it is to run here, in its place or on its own topics, run: ${command('migrate adopt', { schema, service })}${pinned} --yes`,
    )
  }
  if (deploymentId !== undefined && deployment.deploymentId !== deploymentId) {
    throw new WaybillError(
      'WRONG_DEPLOYMENT',
      `The schema "${schema}" is the deployment "${deployment.deploymentId}", but this process is set to "${deploymentId}". ` +
        `Connect it to its own database; or, if this one is to become "${deploymentId}", run: ${command('migrate adopt', { schema, service })}${pinned} --yes`,
    )
  }
}

/** Whether the stamp was made on another database. What could not be asked is not compared. */
export function isCopy({ stampedOn, identity }: DeploymentStamp): boolean {
  const otherSystem = stampedOn.system !== null && identity.system !== null && stampedOn.system !== identity.system
  return otherSystem || stampedOn.database !== identity.database || stampedOn.table !== identity.table
}

/** How to bring the schema up to date, as a sentence. */
export function runUp(names: DeploymentNames): string {
  return `Run: ${command('migrate up', names)}`
}

export interface AdoptOptions extends DeploymentNames {
  /** Who does it, for the audit log. */
  readonly actor: string
}

export interface Adopted {
  readonly before: DeploymentStamp
  readonly deploymentId: string
}

/** Binds a copied or restored schema to this database, under a new deployment id unless one is given; audited. */
export async function adoptDeployment(db: Database, options: AdoptOptions): Promise<Adopted> {
  refuseUnknown('adoptDeployment', options, ['schema', 'service', 'deploymentId', 'actor'])
  const { actor } = options
  const names = checkedNames(options)
  return await transaction(db, async (tx) => {
    const status = await migrationStatus(tx, { schema: names.schema })
    const before = status.deployment
    if (before === undefined)
      throw new WaybillError('SCHEMA_MISMATCH', `There is no schema "${names.schema}" to adopt in this database. ${runUp(names)}`)
    if (before.service !== names.service) assertOwn(status, names)
    const { deployment_id: deploymentId } = await one(tx, restampDeployment(names.schema, names.deploymentId))
    await one(tx, insertAudit(names.schema, { actor, action: 'deployment.adopt', details: { before, deploymentId } }))
    return { before, deploymentId }
  })
}

/** Turns "permission denied" into a sentence. */
async function readable<Result>(
  names: { readonly schema: string; readonly service?: string | undefined },
  read: () => Promise<Result>,
): Promise<Result> {
  try {
    return await read()
  } catch (cause) {
    if (sqlState(cause) !== '42501') throw cause
    const roles = (['app', 'relay', 'consumer'] as const).map((role) => shownGroupRole(names, role))
    throw new WaybillError(
      'FORBIDDEN',
      `This database role may not read the schema "${names.schema}". Grant it one of ${roles.join(', ')} (made by: waybill migrate up --roles).`,
      { cause },
    )
  }
}

function command(words: string, { schema, service }: DeploymentNames): string {
  return `waybill ${words} --schema ${schema} --service ${service}`
}
