/** Every statement of the command pipeline: markers, and the versions of aggregates. No other file names the marker's table. */
import { standbyBarrier } from '../../postgres/transaction/commit-outcome.ts'
import { name, sql, sqlArray, type Name, type Statement } from '../../postgres/query/sql.ts'

export interface CommandTables {
  readonly marker: Name
  readonly aggregateVersion: Name
  readonly lockAggregates: Name
  readonly claimCommand: Name
  readonly answerCommand: Name
  readonly expireMarkers: Name
  readonly markerRetention: Name
  readonly traceMarker: Name
}

export function commandTables(schema: string): CommandTables {
  return {
    marker: name(schema, 'command_marker'),
    aggregateVersion: name(schema, 'aggregate_version'),
    lockAggregates: name(schema, 'lock_aggregates'),
    claimCommand: name(schema, 'claim_command'),
    answerCommand: name(schema, 'answer_command'),
    expireMarkers: name(schema, 'expire_markers'),
    markerRetention: name(schema, 'marker_retention'),
    traceMarker: name(schema, 'trace_marker'),
  }
}

export interface MarkerKey {
  readonly principal: string
  readonly requestId: string
}

export interface NewMarker extends MarkerKey {
  readonly command: string
  readonly fingerprint: string
  /** The lock time-out for the rest of the transaction, once the marker is in. */
  readonly lockTimeoutMs: number
}

type Aggregates = readonly { readonly type: string; readonly id: string }[]

/** The version of an aggregate; nulls where a command locks none. */
export interface VersionRow {
  readonly type: string | null
  readonly id: string | null
  readonly version: string | null
}

/**
 * The first statement of a command's transaction: its marker, then its aggregates. No row means that the request is known.
 *
 * A run of the same request that has not ended makes it wait, for the short lock time-out that the transaction began with. The
 * function sets the longer one for what follows. Index: command_marker_pkey, aggregate_version_pkey.
 */
export function claimCommand(tables: CommandTables, marker: NewMarker, aggregates: Aggregates): Statement<VersionRow> {
  const { principal, requestId, command, fingerprint, lockTimeoutMs } = marker
  return sql`
    select aggregate_type as type, aggregate_id as id, version::text as version
      from ${tables.claimCommand}(${principal}::text, ${requestId}::text, ${command}::text, decode(${fingerprint}::text, 'hex'),
        ${typesOf(aggregates)}::text::text[], ${idsOf(aggregates)}::text::text[], ${String(lockTimeoutMs)}::text)`
}

export interface MarkerRow {
  readonly fingerprint: string
  readonly rejected: boolean
  readonly response: string | null
  readonly token: string | null
  /** The lower half of the id of the transaction that wrote it. */
  readonly xmin: string
}

/** The marker of a request, if it has committed, and on the synchronous standbys when this commits. Index: command_marker_pkey. */
export function selectMarker(tables: CommandTables, key: MarkerKey): Statement<MarkerRow> {
  return sql`
    select encode(fingerprint, 'hex') as fingerprint, rejected, response, token, xmin::text as xmin, ${standbyBarrier} as barrier
      from ${tables.marker} where principal = ${key.principal}::text and request_id = ${key.requestId}::text`
}

export interface MarkerAnswer {
  readonly rejected: boolean
  readonly response: string
  readonly token: string | null
}

/** Keeps the answer in the marker's row; the function refuses markers of other transactions. Index: command_marker_pkey. */
export function updateMarker(tables: CommandTables, key: MarkerKey, answer: MarkerAnswer): Statement<{ kept: boolean }> {
  return sql`
    select ${tables.answerCommand}(rejected => ${answer.rejected}::boolean, response => ${answer.response}::text, token => ${answer.token}::text,
      principal => ${key.principal}::text, request_id => ${key.requestId}::text) as kept`
}

/** Locks aggregates in the order of (type, id) and returns their versions. Index: aggregate_version_pkey. */
export function lockAggregates(
  tables: CommandTables,
  aggregates: Aggregates,
): Statement<{ type: string; id: string; version: string }> {
  return sql`
    select aggregate_type as type, aggregate_id as id, version::text as version
      from ${tables.lockAggregates}(${typesOf(aggregates)}::text::text[], ${idsOf(aggregates)}::text::text[])`
}

/** The current versions of aggregates, without a lock. Index: aggregate_version_pkey. */
export function selectVersions(
  tables: CommandTables,
  aggregates: Aggregates,
): Statement<{ type: string; id: string; version: string }> {
  return sql`
    select a.aggregate_type as type, a.aggregate_id as id, a.version::text as version
      from unnest(${typesOf(aggregates)}::text::text[], ${idsOf(aggregates)}::text::text[]) as w (type, id)
      join ${tables.aggregateVersion} a on a.aggregate_type = w.type and a.aggregate_id = w.id`
}

/**
 * Deletes the oldest markers that are older than this, and than the database keeps any; says how late the oldest is that is left.
 * A definer function: the app's own login may not delete markers. Index: command_marker_created_at_idx.
 */
export function deleteExpired(
  tables: CommandTables,
  keepMs: number,
  limit: number,
): Statement<{ deleted: number; lag_ms: string | null }> {
  return sql`
    select deleted, lag_ms::text as lag_ms from ${tables.expireMarkers}(${String(keepMs)}::text::bigint, ${String(limit)}::text::int)`
}

/** How long the oldest marker has been due for deletion; negative while it is not. Index: command_marker_created_at_idx. */
export function selectLag(tables: CommandTables, keepMs: number): Statement<{ lag_ms: string | null }> {
  return sql`
    select (extract(epoch from clock_timestamp() - min(created_at)) * 1000
              - greatest(${String(keepMs)}::text::bigint, (select keep_ms from ${tables.markerRetention})))::bigint::text as lag_ms
      from ${tables.marker}`
}

function typesOf(aggregates: Aggregates): string {
  return sqlArray(aggregates.map(({ type }) => type))
}

function idsOf(aggregates: Aggregates): string {
  return sqlArray(aggregates.map(({ id }) => id))
}
