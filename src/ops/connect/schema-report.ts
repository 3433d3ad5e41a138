/**
 * The state of a schema in one word and one sentence: what a process would be told at start, without the refusal.
 */
import { isWaybillError } from '../../core/errors.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import { assertSchema } from '../../postgres/schema/deployment.ts'
import { migrationStatus, type AppliedMigration } from '../../postgres/schema/status.ts'

export interface SchemaReport {
  readonly schema: string
  /** `refused` is a schema that this process may not work on, whatever it lacks. */
  readonly state: 'missing' | 'behind' | 'current' | 'refused'
  /** What is wrong and what to do. */
  readonly problem: string | undefined
  readonly service: string | undefined
  readonly deploymentId: string | undefined
  readonly roles: boolean
  readonly applied: readonly AppliedMigration[]
  /** The names of the migrations that are still to be applied. */
  readonly pending: readonly string[]
}

/** Reports on a schema. Without a service it is compared with its own. */
export async function schemaReport(
  db: Queryable,
  names: { readonly schema: string; readonly service?: string | undefined; readonly deploymentId?: string | undefined },
): Promise<SchemaReport> {
  const status = await migrationStatus(db, { schema: names.schema })
  const problem = await problemOf(db, names)
  const state = problem === undefined ? 'current' : !status.installed ? 'missing' : problem.mayMigrate ? 'behind' : 'refused'
  return {
    schema: status.schema,
    state,
    problem: problem?.message,
    service: status.deployment?.service,
    deploymentId: status.deployment?.deploymentId,
    roles: status.managed,
    applied: status.applied,
    pending: status.pending.map(({ name }) => name),
  }
}

async function problemOf(
  db: Queryable,
  names: Parameters<typeof assertSchema>[1],
): Promise<{ readonly message: string; readonly mayMigrate: boolean } | undefined> {
  try {
    await assertSchema(db, names)
    return undefined
  } catch (error) {
    if (!isWaybillError(error)) throw error
    return { message: error.message, mayMigrate: error.code === 'SCHEMA_MISMATCH' && error.details['pending'] !== undefined }
  }
}
