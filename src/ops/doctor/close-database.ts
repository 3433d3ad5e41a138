/**
 * Closes a database to logins that are no members of its service's roles: the SQL for it, and running that. Every database is open to
 * each login of its server when it is made, and only its owner can change that. A migration never does: other programs may use it.
 */
import { WaybillError } from '../../core/errors.ts'
import { one, type Database, type Queryable } from '../../postgres/query/database.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { migrationStatus } from '../../postgres/schema/status.ts'
import { closeDatabaseSql } from '../../postgres/schema/roles.sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { selectRoleGuards } from './roles.sql.ts'

/** The statements that close this database; REFUSED if the schema has no roles, for then it would be closed to all. */
export async function closingSql(db: Queryable, schema: string): Promise<{ readonly database: string; readonly sql: string }> {
  const { managed, deployment } = await migrationStatus(db, { schema })
  if (!managed || deployment === undefined)
    throw new WaybillError(
      'REFUSED',
      `The schema "${schema}" has no database roles that could keep their access. Make them first: waybill migrate up --roles`,
    )
  const { database } = await one(db, selectRoleGuards(schema))
  return { database, sql: closeDatabaseSql(database, { schema, service: deployment.service }) }
}

/** Runs them, audited; FORBIDDEN if the role may not, and then nothing is changed. */
export async function closeDatabase(
  db: Database,
  { schema, actor }: { readonly schema: string; readonly actor: string },
): Promise<string> {
  return await transaction(db, async (tx) => {
    const { database, sql } = await closingSql(tx, schema)
    await tx.query(sql)
    // Postgres only warns if a role revokes what it did not grant.
    if ((await one(tx, selectRoleGuards(schema))).open_to_public)
      throw new WaybillError(
        'FORBIDDEN',
        `Only the owner of the database "${database}" may close it to PUBLIC. Run this as its owner, or hand it what --print shows.`,
      )
    await one(tx, insertAudit(schema, { actor, action: 'database.close', details: { database } }))
    return database
  })
}
