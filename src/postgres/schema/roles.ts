/**
 * The database roles of a schema, and what each may do: the one place that says so.
 *
 * Group roles without login, named after schema and service (`waybill_orders_app` …), for roles belong to the whole server, where each
 * database may have a schema of that name. A service's own login becomes a member:
 *   owner     owns everything in the schema; migrates, and does what operators do
 *   app       writes events and command markers in its business transactions
 *   relay     publishes events            consumer  applies events
 *   readonly  dashboards: all but what messages and commands contain            payloads  that, for a login that is in readonly, too
 *
 * Whoever adds a table, view or function in a migration adds a line below, and a test fails until that is done. A role
 * that a line does not name gets nothing. Prefer columns, `update (state, error)`, to whole tables. Identity columns need
 * no grant on their sequence. A view reads as the owner, but whoever uses it must be allowed to execute its functions.
 * Everybody reads `migration` and `deployment`: every process checks at start whether it may work on this schema.
 */
import { createHash } from 'node:crypto'

export const groupRoles = ['owner', 'app', 'relay', 'consumer', 'readonly', 'payloads'] as const
export type GroupRole = (typeof groupRoles)[number]
export type GrantedRole = Exclude<GroupRole, 'owner'>

/** `select`, `insert`, `update`, `delete`, or one of the first three on some columns: `update (state, error)`. */
export type Privilege = 'select' | 'insert' | 'update' | 'delete' | `${'select' | 'insert' | 'update'} (${string})`

export type Grants = Readonly<Partial<Record<GrantedRole, readonly Privilege[]>>>

/** Tables and views, by name. */
export const tableGrants: Readonly<Record<string, Grants>> = {
  migration: { app: ['select'], relay: ['select'], consumer: ['select'], readonly: ['select'], payloads: ['select'] },
  deployment: { app: ['select'], relay: ['select'], consumer: ['select'], readonly: ['select'], payloads: ['select'] },
  operation: { readonly: ['select'] },
  // The owner writes it through record_audit; triggers keep it as it is.
  audit_log: { readonly: ['select'] },

  // Events are written through add_events alone, which runs as the owner.
  aggregate_version: { app: ['select'], readonly: ['select'] },
  unlocked_write: { app: ['select'], relay: ['select'], readonly: ['select'] },
  outbox: {
    relay: ['select', 'delete'],
    readonly: [
      'select (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, headers, occurred_at)',
    ],
    payloads: ['select (id, payload)'],
  },
  outbox_source: { readonly: ['select (source, source_event_id, ordinal, event_id, emitted_at)'] },
  outbox_dispatch: {
    relay: ['select', 'update (state, publish_attempts, void, next_retry_at, parked_at, last_error)', 'delete'],
    readonly: ['select'],
  },
  outbox_lane: {
    relay: ['select', 'update (lock_token, locked_by, locked_at, lock_expires_at, batch_from, batch_to)'],
    readonly: ['select'],
  },
  outbox_relay: { relay: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },
  outbox_receipt: { relay: ['select', 'insert'], readonly: ['select'] },
  outbox_pause: { relay: ['select'], readonly: ['select'] },
  outbox_status: { relay: ['select'], readonly: ['select'] },

  // Whoever adds events writes blobs; the relay's process expires them.
  blob: {
    app: ['select', 'insert', 'update (used_at)'],
    consumer: ['select', 'insert', 'update (used_at)'],
    relay: ['select', 'update (used_at)', 'delete'],
    readonly: ['select'],
  },
  blob_part: { app: ['select', 'insert'], consumer: ['select', 'insert'], payloads: ['select'] },

  // A function keeps the answer in a transaction's own marker, and another deletes those whose time is over.
  command_marker: {
    app: ['select', 'insert'],
    readonly: ['select (created_at, rejected, command)'],
    payloads: ['select (created_at, rejected, command, principal, request_id, response)'],
  },
  marker_retention: { app: ['select'], readonly: ['select'] },

  // Whoever removes rows by age.
  retention_clock: { app: ['select', 'insert', 'update'], consumer: ['select', 'insert', 'update'], readonly: ['select'] },

  // Readers with a consistency token look at the positions.
  consumer: { app: ['select'], consumer: ['select', 'insert', 'update'], readonly: ['select'] },
  consumer_reader: { app: ['select'], consumer: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },
  // Whoever locks a row, to remove it beside others, needs an update of some column.
  inbox: {
    app: ['select (consumer, generation, event_id, conflicted_at)'],
    consumer: ['select', 'insert', 'update (processed_at, conflicted_at)', 'delete'],
    readonly: ['select (consumer, generation, event_id, processed_at, source, conflicted_at)'],
  },
  consumer_position: { app: ['select'], consumer: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },
  consumer_offset: { consumer: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },
  delivery_attempt: { consumer: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },
  inbox_message: {
    consumer: ['select', 'insert', 'update', 'delete'],
    readonly: [
      'select (consumer, generation, event_id, seq, lane, key, state, attempts, error, next_attempt_at, started_at, aggregate_type, aggregate_id, version, topic, ordering_key, message_id, attributes, published_at, received_at, unknown)',
    ],
    payloads: ['select (consumer, generation, event_id, body)'],
  },
  inbox_archive: {
    consumer: ['select', 'insert', 'update (archived_at)', 'delete'],
    readonly: [
      'select (consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, ordering_key, message_id, attributes, published_at, received_at, archived_at)',
    ],
    payloads: ['select (consumer, generation, event_id, body)'],
  },
  inbox_lane: { consumer: ['select', 'insert', 'update'], readonly: ['select'] },
  dead_letter: {
    consumer: ['select', 'insert', 'update', 'delete'],
    readonly: [
      'select (id, consumer, generation, event_id, event_type, aggregate_type, aggregate_id, version, state, reason, error, attempts, redrives, history, topic, ordering_key, message_id, attributes, published_at, first_failed_at, dead_at, next_attempt_at)',
    ],
    payloads: ['select (id, body)'],
  },
  refused_message: {
    consumer: ['select', 'insert', 'update'],
    readonly: ['select (consumer, reason, slot, topic, message_id, body_bytes, published_at, refused_at)'],
    payloads: ['select (consumer, reason, slot, attributes, body)'],
  },

  // Publishing, subscribing and leasing run as the owner, through functions.
  transport_topic: { consumer: ['select'], readonly: ['select'] },
  transport_subscription: { consumer: ['select'], readonly: ['select'] },
  transport_lane: { consumer: ['select'], readonly: ['select'] },
  transport_gate: {},
  transport_receiver: { readonly: ['select'] },
  transport_message: {
    consumer: ['select'],
    readonly: ['select (topic_id, seq, key, attributes, published_at)'],
    payloads: ['select (topic_id, seq, body)'],
  },
  transport_delivery: { consumer: ['select', 'update (attempts, rest_until)', 'delete'], readonly: ['select'] },
}

/** Who may execute a function, by its name. */
export const functionGrants: Readonly<Record<string, readonly GrantedRole[]>> = {
  database_identity: ['app', 'relay', 'consumer', 'readonly', 'payloads'],
  record_audit: [],
  audit_stamp: [],
  audit_refuse: [],

  add_events: ['app', 'consumer'],
  add_event: ['app', 'consumer'],
  add_facts: ['app'],
  outbox_lanes: ['relay', 'readonly'],
  outbox_dispatching: ['relay', 'readonly'],
  outbox_read: ['relay'],
  outbox_settle: ['relay'],
  outbox_expire: ['relay'],
  outbox_change_lanes: [],
  outbox_set_dispatching: [],
  outbox_wrong_version: [],
  outbox_refuse_date: [],
  outbox_refuse_dropped: [],
  outbox_refuse_id: [],
  outbox_refuse_update: [],

  lock_aggregates: ['app', 'consumer'],
  // Whoever owns a table makes the trigger; nobody calls it.
  guard_aggregate: ['app'],
  holds_aggregate: [],
  xid_in_progress: [],
  note_unlocked_write: [],
  claim_command: ['app'],
  answer_command: ['app'],
  expire_markers: ['app'],
  trace_marker: ['readonly'],

  lock_letters: ['consumer'],

  transport_publish: ['relay'],
  transport_subscribe: ['consumer'],
  transport_seek: ['consumer'],
  transport_rewind: ['consumer'],
  transport_lease: ['consumer'],
  transport_lane_of: ['consumer'],
  transport_horizon: ['consumer'],
  transport_sweep_topic: ['consumer'],
  transport_unsubscribe: [],
  transport_gate_shut: [],
  transport_lock_topic: [],
  transport_fill: [],
}

/** What the group roles are named after. */
export interface RoleNames {
  readonly schema: string
  readonly service: string
}

/**
 * The name of a group role, the same at every call: at most 63 characters, of which a hash replaces the end of long names. Names that
 * differ in signs alone may meet; the roles' comments tell them apart, and `migrate` refuses the second.
 */
export function groupRole({ schema, service }: RoleNames, role: GroupRole): string {
  const stem = `${schema}_${service.toLowerCase().replaceAll(/[^a-z0-9]+/g, '_')}`
  if (stem.length <= longestStem) return `${stem}_${role}`
  const hash = createHash('sha256').update(`${schema} ${service}`).digest('hex').slice(0, 8)
  return `${stem.slice(0, longestStem - 9)}_${hash}_${role}`
}

const longestStem: number = 63 - '_consumer'.length

/** The name that a role had before it carried the service. A migration with roles renames it. */
export function formerGroupRole(schema: string, role: GroupRole): string {
  return `${schema}_${role}`.slice(0, 63)
}

/** The same for a sentence, where the service may be unknown. */
export function shownGroupRole(
  { schema, service }: { readonly schema: string; readonly service?: string | undefined },
  role: GroupRole,
): string {
  return service === undefined ? `${schema}_<service>_${role}` : groupRole({ schema, service }, role)
}

export function isOwnerRole(names: RoleNames, role: string | null): boolean {
  return role === groupRole(names, 'owner') || role === formerGroupRole(names.schema, 'owner')
}
