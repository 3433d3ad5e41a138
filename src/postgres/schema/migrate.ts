/**
 * Brings a schema up to date: numbered migrations, forward only, each applied exactly once.
 *
 * - One lock, held by a transaction, so it works through a pooler: a row, or for a new schema a table, that a login without rights on
 *   the schema cannot lock. Of many processes one migrates; the others wait, see that nothing is left to do, and succeed as well.
 * - Migrations in a row share one transaction: all or none. One that says `-- no-transaction` runs on a connection of its
 *   own while the lock is held, and is run again if it was cut off before it was recorded.
 * - The first run binds the schema to a service and to this database. A schema that is another's is refused.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { errorMessage, WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import { execute, first, rows, type Database, type Tx } from '../query/database.ts'
import { assertKnown, assertOwn } from './deployment.ts'
import { checkedNames, type DeploymentNames } from './deployment-names.ts'
import {
  createSchema,
  createStartTable,
  dropIndex,
  dropStartTable,
  insertApplied,
  limitLockWait,
  selectInvalidIndexes,
  stampDeployment,
  tryMigrationLock,
  waitBriefly,
} from './migrate.sql.ts'
import { packageVersion, renderMigration, shippedMigrations, type Migration } from './migration-files.ts'
import { migrationStatus, type MigrationStatus } from './status.ts'
import { applyRoles, lockSchemaDown } from './roles.sql.ts'
import { isAlreadyThere, isLockTimeout, isRoleRefused, isStatementTimeout } from '../query/sql-state.ts'
import { transaction, transactionOptions } from '../transaction/transaction.ts'

export interface MigrateOptions extends DeploymentNames {
  /** Make the schema's database roles and their grants. @default true if an earlier run made them, else false */
  readonly roles?: boolean | undefined
  /** How long to wait for another process that migrates. @default 600_000 */
  readonly waitMs?: number
  /** @default those of this package */
  readonly migrations?: readonly Migration[]
  /** Aborting it ends the wait for another process, or stops between two steps; what was applied stays. */
  readonly signal?: AbortSignal | undefined
  readonly clock?: Clock
}

export interface Migrated {
  /** The names of the migrations that this call applied. */
  readonly applied: readonly string[]
  readonly deploymentId: string
  /** Whether the schema has its database roles. */
  readonly roles: boolean
  /** The names of the migrations that a newer package applied. While there are some, the roles are left as that one made them. */
  readonly newer: readonly string[]
}

const optionNames = ['schema', 'service', 'deploymentId', 'roles', 'waitMs', 'migrations', 'signal', 'clock']
const askAgainMs = 100
const withoutTimeouts = transactionOptions({ statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 })

/** Applies what is missing and returns what it applied; a second call applies nothing. */
export async function migrate(db: Database, options: MigrateOptions): Promise<Migrated> {
  refuseUnknown('migrate', options, optionNames)
  const { migrations = shippedMigrations(), waitMs = 600_000, clock = systemClock } = options
  const run: Run = { db, names: checkedNames(options), roles: options.roles, migrations }
  const applied: string[] = []
  const deadline = clock.monotonicMs() + waitMs
  for (;;) {
    if (options.signal?.aborted === true) throw stopped(run.names.schema, applied)
    const step = await transaction(db, (tx) => migrateStep(run, tx), withoutTimeouts).catch((error: unknown) =>
      error === takenByAnother ? ('busy' as const) : explain(error, run.names.schema, applied),
    )
    if (step === 'busy') {
      if (clock.monotonicMs() >= deadline) {
        throw new WaybillError(
          'TIMEOUT',
          `Another process has been migrating the schema "${run.names.schema}" for ${waitMs} ms. Wait for it, or find it in pg_stat_activity.`,
        )
      }
      await clock.sleep(askAgainMs, options.signal)
      continue
    }
    applied.push(...step.migrated.applied)
    if (step.done) return { ...step.migrated, applied }
  }
}

interface Run {
  readonly db: Database
  readonly names: DeploymentNames
  readonly roles: boolean | undefined
  readonly migrations: readonly Migration[]
}

type Step = 'busy' | { readonly done: boolean; readonly migrated: Migrated }

/** Applies the next migrations that fit into one transaction, under the lock. */
async function migrateStep(run: Run, tx: Tx): Promise<Step> {
  const { names, migrations } = run
  const { schema } = names
  const found = await migrationStatus(tx, { schema, migrations })
  assertMayMigrate(found, run)
  // A role that may only look takes no lock, and needs none.
  if (found.pending.length === 0 && found.deployment !== undefined && !(mayGrant(found) && run.roles === true))
    return { done: true, migrated: migratedOf(found, [], found.managed) }
  if (!found.installed) await startSchema(tx, found)
  else if ((await first(tx, tryMigrationLock(schema))) === undefined) return 'busy'
  const before = { ...(await migrationStatus(tx, { schema, migrations })), occupied: found.occupied }
  if (before.installed !== found.installed) throw takenByAnother
  assertMayMigrate(before, run)

  const alone = before.pending[0]?.transactional === false
  const firstAlone = before.pending.findIndex((migration) => !migration.transactional)
  const next = alone ? before.pending.slice(0, 1) : before.pending.slice(0, firstAlone === -1 ? undefined : firstAlone)
  const done = next.length === before.pending.length

  await execute(tx, limitLockWait())
  for (const migration of next) {
    if (migration.transactional) await tx.query(renderMigration(migration, schema))
    else await runAlone(run, migration)
    await execute(tx, insertApplied(schema, { ...migration, applied_by: packageVersion() }))
  }
  if (before.deployment === undefined) await execute(tx, stampDeployment(schema, names.service, names.deploymentId))
  const roles = mayGrant(before) && (run.roles ?? before.managed)
  const isAsked = mayGrant(before) && run.roles === true
  if (next.length > 0 || isAsked) await tx.query(lockSchemaDown(schema))
  if (roles && done && (next.length > 0 || isAsked)) await tx.query(applyRoles(names))
  if (!before.installed) await execute(tx, dropStartTable(schema))
  const after = await migrationStatus(tx, { schema, migrations })
  const applied = next.map((migration) => migration.name)
  return { done, migrated: migratedOf({ ...after, newer: before.newer }, applied, roles || before.managed) }
}

function migratedOf({ deployment, newer }: MigrationStatus, applied: readonly string[], roles: boolean): Migrated {
  return { applied, deploymentId: deployment?.deploymentId ?? '', roles, newer }
}

const takenByAnother: Error = new Error('Another process makes the schema.')

/** The first run has no row to lock: of several that make the same schema or table, one succeeds, and the others ask again. */
async function startSchema(tx: Tx, { schema, present }: MigrationStatus): Promise<void> {
  try {
    await execute(tx, waitBriefly())
    if (!present) await execute(tx, createSchema(schema))
    await execute(tx, createStartTable(schema))
  } catch (error) {
    throw isLockTimeout(error) || isAlreadyThere(error) ? takenByAnother : error
  }
}

/** Our list of grants lacks what a newer package added: applying it would lock that one's processes out. */
export function mayGrant({ newer }: MigrationStatus): boolean {
  return newer.length === 0
}

function stopped(schema: string, applied: readonly string[]): WaybillError {
  return new WaybillError(
    'ABORTED',
    `The migration of "${schema}" was stopped. ${soFar(applied)}; it can be run again at any time.`,
  )
}

/** Every writer of the schema waits behind this lock as well, so it is not waited for long. */
function explain(cause: unknown, schema: string, applied: readonly string[]): never {
  if (isRoleRefused(cause)) throw new WaybillError('REFUSED', `${errorMessage(cause)} ${soFar(applied)}.`, { cause })
  if (!isLockTimeout(cause)) throw cause
  throw new WaybillError(
    'TIMEOUT',
    `A transaction that works on the schema "${schema}" goes on for longer than a migration waits, since all others would wait behind it. ${soFar(applied)}. Let it end, or end it (pg_stat_activity), and run this again.`,
    { cause },
  )
}

function soFar(applied: readonly string[]): string {
  return applied.length === 0 ? 'Nothing was changed' : `Applied before: ${applied.join(', ')}`
}

/** Refuses a schema that is not ours to change. */
export function assertMayMigrate(status: MigrationStatus, { names, migrations }: Pick<Run, 'names' | 'migrations'>): void {
  if (status.occupied && !status.installed) {
    throw new WaybillError(
      'REFUSED',
      `The schema "${status.schema}" holds tables that are not Waybill's. Choose a schema of its own.`,
    )
  }
  assertKnown(status, migrations)
  if (status.deployment !== undefined) assertOwn(status, names)
}

/**
 * The caller's transaction holds the lock and no snapshot, so an index can be built beside it. An index whose build was cut
 * off stays behind, invalid, and `if not exists` would take it for a good one: it is dropped first.
 */
async function runAlone({ db, names: { schema } }: Run, migration: Migration): Promise<void> {
  try {
    for (const { index } of await rows(db, selectInvalidIndexes(schema))) await execute(db, dropIndex(schema, index))
    await db.query(renderMigration(migration, schema))
  } catch (cause) {
    if (!isStatementTimeout(cause)) throw cause
    throw new WaybillError(
      'TIMEOUT',
      `${migration.name} was ended by the statement_timeout of its role, or by hand: it runs in no transaction, so it cannot set its own. Lift it (alter role … set statement_timeout = 0), and run this again.`,
      { cause },
    )
  }
}
