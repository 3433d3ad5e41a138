/** Every statement that the migration runner needs. No other file names the tables of the first migration. */
import { sql, name, sqlArray, type Statement } from '../query/sql.ts'

/** What is at a schema's name: nothing, something of others, or ours. Reads the catalogue, which everybody may. */
export function inspectSchema(
  schema: string,
): Statement<{ present: boolean; installed: boolean; occupied: boolean; owner: string | null }> {
  return sql`
    select n.oid is not null as present,
           exists (select from pg_catalog.pg_class c
                    where c.relnamespace = n.oid and c.relname = 'migration' and c.relkind = 'r') as installed,
           exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid) as occupied,
           pg_catalog.pg_get_userbyid(n.nspowner)::text as owner
      from (values (1)) as always
      left join pg_catalog.pg_namespace n on n.nspname = ${schema}::text`
}

export interface AppliedRow {
  readonly number: number
  readonly name: string
  readonly checksum: string
  readonly breaking: boolean
  readonly applied_at: string
  readonly applied_by: string
}

/** The migrations that ran, in order. Index: primary key. */
export function selectApplied(schema: string): Statement<AppliedRow> {
  return sql`
    select number, name, checksum, breaking, to_char(applied_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as applied_at, applied_by
      from ${name(schema, 'migration')}
     order by number`
}

export interface DeploymentRow {
  readonly service: string
  readonly deployment_id: string
  readonly stamped_on: string
  readonly identity: string
}

/** Whose schema this is and where it was stamped, beside where it is now. */
export function selectDeployment(schema: string): Statement<DeploymentRow> {
  return sql`
    select service, deployment_id, stamped_on::text as stamped_on, ${name(schema, 'database_identity')}()::text as identity
      from ${name(schema, 'deployment')}`
}

/**
 * Takes the lock under which migrations run, until the transaction ends: the row of the first one, which only the owner may lock. No
 * row if another process has it.
 *
 * It never waits: a statement that waited would hold a snapshot, and an index built concurrently by the one who has the
 * lock would wait for that snapshot for ever.
 */
export function tryMigrationLock(schema: string): Statement<{ number: number }> {
  return sql`select number from ${name(schema, 'migration')} where number = 1 for update skip locked`
}

/** The same lock for scripts, which cannot ask again. */
export function waitForMigrationLock(schema: string): Statement {
  return sql`select number from ${name(schema, 'migration')} where number = 1 for update`
}

/**
 * The lock of a schema without tables: of two transactions that make the same table, the later one fails, soon by `waitBriefly`. The
 * table goes before the transaction ends.
 */
export function createStartTable(schema: string): Statement {
  return sql`create table ${name(schema, 'migrating')} ()`
}

export function dropStartTable(schema: string): Statement {
  return sql`drop table ${name(schema, 'migrating')}`
}

/** How long a first run waits to see whether another one makes the schema. */
export function waitBriefly(): Statement {
  return sql`set local lock_timeout = '100ms'`
}

/** `if not exists` asks for the right to create schemas even if it does exist, so the runner looks first. */
export function createSchema(schema: string, when: 'always' | 'if-missing' = 'always'): Statement {
  return when === 'always' ? sql`create schema ${name(schema)}` : sql`create schema if not exists ${name(schema)}`
}

export function insertApplied(schema: string, row: Omit<AppliedRow, 'applied_at'>): Statement {
  return sql`
    insert into ${name(schema, 'migration')} (number, name, checksum, breaking, applied_by)
    values (${row.number}, ${row.name}, ${row.checksum}, ${row.breaking}, ${row.applied_by})`
}

/** Binds the schema to a service and to this database. The second to come changes nothing. */
export function stampDeployment(schema: string, service: string, deploymentId: string | undefined): Statement {
  return sql`
    insert into ${name(schema, 'deployment')} (service, deployment_id, stamped_on)
    values (${service}, coalesce(${deploymentId ?? null}::text, gen_random_uuid()::text), ${name(schema, 'database_identity')}())
    on conflict do nothing`
}

/** Binds a copied or restored schema to the database that it is in now. */
export function restampDeployment(schema: string, deploymentId: string | undefined): Statement<{ deployment_id: string }> {
  return sql`
    update ${name(schema, 'deployment')}
       set deployment_id = coalesce(${deploymentId ?? null}::text, gen_random_uuid()::text),
           stamped_on = ${name(schema, 'database_identity')}(),
           adopted_at = clock_timestamp()
    returning deployment_id`
}

/**
 * DDL that waits for a busy table stops everybody who comes after it; so it gives up soon, and can be run again.
 *
 * A `set`, not `set_config`: a select before it would keep its snapshot until the next statement, and an index built
 * concurrently beside this transaction would wait for that snapshot for ever. `set` has none and ends the one before.
 */
export function limitLockWait(): Statement {
  return sql`set local lock_timeout = '5s'`
}

/** What a concurrent index build that was cut off has left. */
export function selectInvalidIndexes(schema: string): Statement<{ index: string }> {
  return sql`
    select c.relname::text as index
      from pg_catalog.pg_index i
      join pg_catalog.pg_class c on c.oid = i.indexrelid
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where n.nspname = ${schema}::text and not i.indisvalid`
}

export function dropIndex(schema: string, index: string): Statement {
  return sql`drop index concurrently if exists ${name(schema, index)}`
}

export interface AuditEntry {
  readonly actor: string
  readonly action: string
  readonly details: Readonly<Record<string, unknown>>
}

/** Adds to the audit log by its function, which writes down the session's own user and time. */
export function insertAudit(schema: string, { actor, action, details }: AuditEntry): Statement<{ id: string }> {
  return sql`
    select ${name(schema, 'record_audit')}(${actor}::text, ${action}::text, ${JSON.stringify(details)}::text::jsonb)::text as id`
}

/** What reaches this process of four bytes, and of NULL in an array that it sends. */
export function probeSession(): Statement<{ bytes: Uint8Array; keeps_null: boolean }> {
  return sql`select decode('005cff41', 'hex') as bytes, (${sqlArray([null])}::text::text[])[1] is null as keeps_null`
}
