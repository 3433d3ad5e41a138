/**
 * Looks at the database roles of a schema: whether their members reach another database, whether another service's reach this one,
 * whether the database is open to every login of the server, and whether the audit log keeps what it has.
 *
 * It only reads, as any role may. A schema without roles has only its audit log to look at.
 */
import { one, rows, type Queryable } from '../../postgres/query/database.ts'
import { migrationStatus } from '../../postgres/schema/status.ts'
import { groupRole, groupRoles } from '../../postgres/schema/roles.ts'
import { selectCrossings, selectForeignRoles, selectRoleGuards } from './roles.sql.ts'

export type RoleProblem = 'role-crosses' | 'role-foreign' | 'audit-open'

export interface RoleFinding {
  readonly problem: RoleProblem
  readonly text: string
}

export interface RoleReport {
  readonly findings: readonly RoleFinding[]
  /** The name of the database, if every login of the server may connect to it. Undefined without roles: then it does not matter. */
  readonly openToPublic: string | undefined
}

export async function doctorRoles(db: Queryable, schema: string): Promise<RoleReport> {
  const { managed, deployment } = await migrationStatus(db, { schema })
  const guards = await one(db, selectRoleGuards(schema))
  const audit: RoleFinding[] = guards.audit_kept
    ? []
    : [
        {
          problem: 'audit-open',
          text: `a trigger of ${schema}.audit_log is off or gone: its rows can be forged, changed or removed. Find out who did that, and put it back: alter table ${schema}.audit_log enable always trigger audit_log_keep, and audit_log_stamp`,
        },
      ]
  if (!managed || deployment === undefined) return { findings: audit, openToPublic: undefined }
  const roles = groupRoles.map((role) => groupRole({ schema, service: deployment.service }, role))
  const crossings = await rows(db, selectCrossings(roles))
  const foreigners = await rows(db, selectForeignRoles(schema, roles))
  return {
    findings: [
      ...audit,
      ...crossings.map(({ role, databases }) => ({
        problem: 'role-crosses' as const,
        text: `the role ${role} has the rights of this schema's roles, and may connect to and has rights in ${databases}: one stolen login reaches both. Give each service a login of its own`,
      })),
      ...foreigners.map(({ role, mark }) => ({
        problem: 'role-foreign' as const,
        text: `the role ${role} may use the schema ${schema}, and belongs to another service (${mark}). Take the rights from it: revoke all on schema ${schema} from ${role}, or the membership that gives them`,
      })),
    ],
    openToPublic: guards.open_to_public ? guards.database : undefined,
  }
}
