/**
 * The statements of readers: how far a consumer is with aggregates, and a projection's row together with that.
 *
 * Both look at the generation that the register names as the current one, in the same statement, so that a rebuild that is
 * swapped in meanwhile is seen with its own positions.
 */
import { joined, name, part, sql, sqlArray, type SqlValue, type Statement } from '../postgres/query/sql.ts'
import type { Projection } from './projection.ts'

/** A consumer and the schema of its tables. */
export interface ReadScope {
  readonly schema: string
  readonly consumer: string
}

export interface AggregateName {
  readonly aggregateType: string
  readonly aggregateId: string
}

/**
 * How far the consumer is with each of these aggregates; `place` counts from 1. One that it has not seen is not returned.
 * Index: the primary key of consumer_position.
 */
export function readPositions(
  { schema, consumer }: ReadScope,
  aggregates: readonly AggregateName[],
): Statement<{ place: number; version: string }> {
  return sql`
    select a.place::int as place, p.version::text as version
      from ${name(schema, 'consumer')} c
     cross join unnest(${sqlArray(aggregates.map((each) => each.aggregateType))}::text::text[],
                       ${sqlArray(aggregates.map((each) => each.aggregateId))}::text::text[])
                  with ordinality as a (aggregate_type, aggregate_id, place)
      join ${name(schema, 'consumer_position')} p
        on p.consumer = c.name and p.generation = c.generation and p.aggregate_type = a.aggregate_type and p.aggregate_id = a.aggregate_id
     where c.name = ${consumer}::text`
}

/**
 * The versions that the rows of these keys have, deleted ones included; `place` counts from 1. A key without a row is not
 * returned, and a row without a version has 0. `keys` is a JSON array of objects by column. Index: the unique index on the key's columns.
 */
export function readVersions(
  { table, keyColumns, versionColumn }: Projection,
  keys: string,
): Statement<{ place: number; version: string }> {
  const matches = keyColumns.map((column) => part`v.${name(column)} = k.${name(column)}`)
  return sql`
    select e.place::int as place, coalesce(v.${name(versionColumn)}, 0)::text as version
      from json_array_elements(${keys}::text::json) with ordinality as e (value, place)
     cross join lateral json_populate_record(null::${table}, e.value) as k
      join ${table} v on ${joined(matches, ' and ')}`
}

/** A row of the user's table, and beside it what is ours. */
export interface ReadRow extends Readonly<Record<string, unknown>> {
  readonly waybill_position: string | null
  /** What the row of the awaited aggregate has. */
  readonly waybill_version: string | null
  readonly waybill_found: boolean
}

/** The projected row of an aggregate. */
export interface RowOf {
  readonly projection: Projection
  readonly key: readonly string[]
}

/**
 * The row of one key, unless it is deleted, with the position of `awaited` in the same snapshot, and the version that its own
 * row has, if that is asked for (`witness`): always returns one row.
 * Indexes: the unique index on the key's columns, the primary key of consumer_position.
 */
export function readRow(
  { schema, consumer }: ReadScope,
  { projection, key }: RowOf,
  { awaited, witness }: { readonly awaited: AggregateName | undefined; readonly witness: RowOf | undefined },
): Statement<ReadRow> {
  const { keyColumns, deletedAtColumn, table } = projection
  const vouching = witness ?? { projection, key }
  const ours = sql<ReadRow>`
    select (select p.version::text
              from ${name(schema, 'consumer')} c
              join ${name(schema, 'consumer_position')} p on p.consumer = c.name and p.generation = c.generation
             where c.name = ${consumer}::text and p.aggregate_type = ${awaited?.aggregateType ?? null}::text
               and p.aggregate_id = ${awaited?.aggregateId ?? null}::text) as waybill_position,
           v.${name(vouching.projection.versionColumn)}::text as waybill_version, t.${name(keyColumns[0] ?? '')} is not null as waybill_found, t.*
      from (select 1) as always
      left join ${table} t on t.${name(deletedAtColumn)} is null`
  const values: SqlValue[] = [...ours.values]
  const matches = (alias: string, { projection: of, key: wanted }: RowOf): string =>
    of.keyColumns.map((column, i) => ` and ${alias}.${name(column).quoted} = $${values.push(wanted[i] ?? null)}`).join('')
  const text = `${ours.text}${matches('t', { projection, key })}
      left join ${vouching.projection.table.quoted} v on ${witness !== undefined}${matches('v', vouching)}`
  return { text, values }
}

export interface RegisterRow {
  readonly generation: number
  readonly next_generation: number | null
  readonly paused: boolean
  readonly complete: boolean
}

/** How the consumer stands in the register. */
export function readRegister({ schema, consumer }: ReadScope): Statement<RegisterRow> {
  return sql`
    select c.generation, c.next_generation, c.paused, c.ready_at is not null as complete
      from ${name(schema, 'consumer')} c where c.name = ${consumer}::text`
}

/** Of how many versions the running instances of a consumer are. Index: the primary key of consumer_reader. */
export function countVersions({ schema, consumer }: ReadScope): Statement<{ versions: number }> {
  return sql`
    select count(distinct r.digest)::int as versions
      from ${name(schema, 'consumer_reader')} r join ${name(schema, 'consumer')} c on c.name = r.consumer and c.generation = r.generation
     where r.consumer = ${consumer}::text and r.expires_at > clock_timestamp()`
}

/** What else must be true of a consumer that an instance takes for complete, by its new events or because it has nothing to do. */
export type Stillness =
  /** No stored message is due for longer. */
  | { readonly dueMs: number }
  /** Nothing is stored, no instance has applied anything for `stillMs`, and nothing has failed that may rest for `restMs`. */
  | { readonly stillMs: number; readonly restMs: number }

/**
 * Notes that the consumer has caught up for the first time, unless the tables show work of any instance.
 * Indexes: primary keys of inbox_lane, inbox_message, consumer_offset and delivery_attempt, inbox_message_retry_idx, inbox_processed_at_idx.
 */
export function markComplete({ schema, consumer }: ReadScope, stillness: Stillness): Statement {
  const message = name(schema, 'inbox_message')
  const isIdle = 'stillMs' in stillness
  const { dueMs, stillMs, restMs } = isIdle ? { dueMs: 0, ...stillness } : { stillMs: 0, restMs: 0, ...stillness }
  return sql`
    with since as materialized (
      select statement_timestamp() - ${dueMs}::float8 * interval '1 millisecond' as due,
             statement_timestamp() - ${stillMs}::float8 * interval '1 millisecond' as still,
             statement_timestamp() - ${restMs}::float8 * interval '1 millisecond' as rest
    ), recent as materialized (
      select i.consumer, i.generation from ${name(schema, 'inbox')} i where i.processed_at > (select still from since)
    )
    update ${name(schema, 'consumer')} c set ready_at = clock_timestamp()
     where c.name = ${consumer}::text and c.ready_at is null
       and not exists (
         select from ${name(schema, 'inbox_lane')} l
         cross join lateral (
           (select m.received_at as due_at from ${message} m
             where m.consumer = c.name and m.generation = c.generation and m.lane = l.lane and m.state = 0 order by m.seq limit 1)
           union all
           (select m.next_attempt_at from ${message} m
             where m.consumer = c.name and m.generation = c.generation and m.lane = l.lane and m.state = 1 order by m.next_attempt_at limit 1)) m
          where l.consumer = c.name and (${isIdle}::boolean or m.due_at <= (select due from since)))
       and not (${isIdle}::boolean
                and (exists (select from recent r where r.consumer = c.name and r.generation = c.generation)
                     or exists (select from ${name(schema, 'consumer_offset')} o
                                 where o.consumer = c.name and o.generation = c.generation and o.updated_at > (select still from since))
                     or exists (select from ${name(schema, 'delivery_attempt')} a
                                 where a.consumer = c.name and a.generation = c.generation and a.finished_at > (select rest from since))))`
}
