/**
 * The statements of a backfill: the locks it takes, and the walk over the owner's table.
 */
import { name, sql, sqlArray, type Name, type Statement } from '../../postgres/query/sql.ts'
import { isLate } from './backlog.sql.ts'
import type { OutboxTables } from './outbox.sql.ts'

/** Readers can tell a snapshot from a change by this header; its value is the id of the operation. */
export const snapshotHeader = 'waybill-snapshot'

/** The lock that every writer of an aggregate's events takes, and the version it stands at; 0 if it has no event. */
export function lockAggregates(
  schema: string,
  aggregateType: string,
  ids: readonly string[],
): Statement<{ id: string; version: string }> {
  return sql`
    select aggregate_id as id, version::text
      from ${name(schema, 'lock_aggregates')}(array_fill(${aggregateType}::text, array[${ids.length}::int]), ${sqlArray(ids)}::text::text[])`
}

/** How many events of all streams are due, counted up to the limit. Index: primary key. */
export function countDue(tables: OutboxTables, limit: number): Statement<{ due: number }> {
  return sql`
    select count(*)::int as due from (
      select from ${tables.lane} l cross join lateral (
        select from ${tables.dispatch} d where d.lane = l.lane and d.state = 0 order by d.seq limit (select ${limit}::int)) d
      limit ${limit}::int) due`
}

/**
 * How many events of a stream failed and will be tried again, counted up to the limit. Heads that wait for their date or for an
 * operator are left out, and what is held or parked. The newest heads are looked through, among which those of a backfill are: in each
 * lane four times its share of the limit, for others may stand between them, and some more, for lanes are not filled evenly.
 * Indexes: the primary keys. The stream is asked for row by row, so that no join reads the whole outbox.
 */
export function countFailed(tables: OutboxTables, aggregateType: string, limit: number): Statement<{ failed: number }> {
  return sql`
    select count(*)::int as failed from (
      select from ${tables.lane} l cross join lateral (
        select d.* from ${tables.dispatch} d
         where d.lane = l.lane and d.state = 1 order by d.seq desc limit (select 4 * ${limit}::bigint / count(*) + 100 from ${tables.lane})) d
       where ${isLate} and (select o.aggregate_type from ${tables.outbox} o where o.id = d.event_id) = ${aggregateType}
       limit ${limit}::int) failed`
}

/** How many snapshots of this operation are parked, counted up to the limit, among so many of the newest parked in each lane. Index: primary key. */
export function countParkedSnapshots(tables: OutboxTables, operation: string, limit: number): Statement<{ parked: number }> {
  return sql`
    select count(*)::int as parked from (
      select from ${tables.lane} l cross join lateral (
        select d.event_id from ${tables.dispatch} d
         where d.lane = l.lane and d.state = 3 order by d.seq desc limit (select ${limit}::int)) d
        join ${tables.outbox} o on o.id = d.event_id
       where o.headers ->> ${snapshotHeader} = ${operation}
      limit ${limit}::int) parked`
}

/** A table or view of the user's, and the columns of its unique key. */
export interface KeyedTable {
  readonly table: Name
  readonly key: readonly Name[]
}

export type KeyedRow = Readonly<Record<string, unknown>> & { readonly waybill_key: string }

/**
 * The rows behind a key, in its order. The key goes back and forth as JSON, which the row type of the table turns into values of
 * the right types. Each is a subquery of its own, so that it is known before the scan and becomes an index condition.
 * Index: the table's unique key.
 */
export function selectPage({ table, key }: KeyedTable, after: string | undefined, limit: number): Statement<KeyedRow> {
  const columns = key.map((column) => `t.${column.quoted}`).join(', ')
  const given = key.map(
    (column) => `(select a.${column.quoted} from jsonb_populate_record(null::${table.quoted}, $2::text::jsonb) a)`,
  )
  return {
    text: `
    select ${keyText(key)} as waybill_key, t.*
      from ${table.quoted} t
     ${after === undefined ? '' : `where (${columns}) > (${given.join(', ')})`}
     order by ${columns}
     limit $1::int`,
    values: after === undefined ? [limit] : [limit, after],
  }
}

/** The rows of these keys as they are now. Index: the table's unique key. */
export function selectKeyed({ table, key }: KeyedTable, keys: readonly string[]): Statement<KeyedRow> {
  return {
    text: `
    select ${keyText(key)} as waybill_key, t.*
      from jsonb_populate_recordset(null::${table.quoted}, $1::text::jsonb) k
      join ${table.quoted} t on ${key.map((column) => `t.${column.quoted} = k.${column.quoted}`).join(' and ')}`,
    values: [`[${keys.join(',')}]`],
  }
}

/** About how many rows there are: the planner's figure for large tables, exact for small ones and for views. */
export function countRows({ table }: KeyedTable): Statement<{ count: number }> {
  return {
    text: `
    select case when c.reltuples > 100000 then c.reltuples::float8 else (select count(*)::float8 from ${table.quoted}) end as count
      from pg_class c where c.oid = $1::text::regclass`,
    values: [table.quoted],
  }
}

function keyText(key: readonly Name[]): string {
  return `jsonb_build_object(${key.map((column) => `'${column.quoted.slice(1, -1)}', t.${column.quoted}`).join(', ')})::text`
}
