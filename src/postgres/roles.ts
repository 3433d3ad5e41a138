/**
 * The database roles of a schema, and what each may do: the one place that says so.
 *
 * Group roles without login, named after the schema (`waybill_app` …); a service's own login becomes a member:
 *   owner     owns everything in the schema; migrates, and does what operators do
 *   app       writes events and command markers in its business transactions
 *   relay     publishes events            consumer  applies events            readonly  dashboards
 *
 * Whoever adds a table, view or function in a migration adds a line below, and a test fails until that is done. A role
 * that a line does not name gets nothing. Prefer columns, `update (state, error)`, to whole tables. Identity columns need
 * no grant on their sequence. A view reads as the owner, but whoever uses it must be allowed to execute its functions.
 * Everybody reads `migration` and `deployment`: every process checks at start whether it may work on this schema.
 */
import { WaybillError } from '../core/errors.ts'

export const groupRoles = ['owner', 'app', 'relay', 'consumer', 'readonly'] as const
export type GroupRole = (typeof groupRoles)[number]
export type GrantedRole = Exclude<GroupRole, 'owner'>

/** `select`, `insert`, `update`, `delete`, or one of the first three on some columns: `update (state, error)`. */
export type Privilege = 'select' | 'insert' | 'update' | 'delete' | `${'select' | 'insert' | 'update'} (${string})`

export type Grants = Readonly<Partial<Record<GrantedRole, readonly Privilege[]>>>

/** Tables and views, by name. */
export const tableGrants: Readonly<Record<string, Grants>> = {
  migration: { app: ['select'], relay: ['select'], consumer: ['select'], readonly: ['select'] },
  deployment: { app: ['select'], relay: ['select'], consumer: ['select'], readonly: ['select'] },
  operation: { readonly: ['select'] },
  audit_log: { readonly: ['select'] },

  // Events are written through add_events alone, which runs as the owner.
  aggregate_version: { app: ['select'], readonly: ['select'] },
  unlocked_write: { app: ['select'], relay: ['select'], readonly: ['select'] },
  outbox: { relay: ['select', 'delete'], readonly: ['select'] },
  outbox_source: { readonly: ['select'] },
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
  blob_part: { app: ['select', 'insert'], consumer: ['select', 'insert'] },

  // The app's own instances clean up, so it may delete.
  command_marker: {
    app: ['select', 'insert', 'update (rejected, response, token)', 'delete'],
    readonly: ['select (created_at, rejected, principal, request_id, command)'],
  },

  // Whoever removes rows by age.
  retention_clock: { app: ['select', 'insert', 'update'], consumer: ['select', 'insert', 'update'], readonly: ['select'] },

  // Readers with a consistency token look at the positions.
  consumer: { app: ['select'], consumer: ['select', 'insert', 'update'], readonly: ['select'] },
  consumer_reader: { app: ['select'], consumer: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },
  // Whoever locks a row, to remove it beside others, needs an update of some column.
  inbox: {
    app: ['select (consumer, generation, event_id, conflicted_at)'],
    consumer: ['select', 'insert', 'update (processed_at, conflicted_at)', 'delete'],
    readonly: ['select'],
  },
  consumer_position: { app: ['select'], consumer: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },
  consumer_offset: { consumer: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },
  delivery_attempt: { consumer: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },
  inbox_message: { consumer: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },
  inbox_archive: { consumer: ['select', 'insert', 'update (archived_at)', 'delete'], readonly: ['select'] },
  inbox_lane: { consumer: ['select', 'insert', 'update'], readonly: ['select'] },
  dead_letter: { consumer: ['select', 'insert', 'update', 'delete'], readonly: ['select'] },

  // Publishing, subscribing and leasing run as the owner, through functions.
  transport_topic: { consumer: ['select'], readonly: ['select'] },
  transport_subscription: { consumer: ['select'], readonly: ['select'] },
  transport_lane: { consumer: ['select'], readonly: ['select'] },
  transport_receiver: { readonly: ['select'] },
  transport_message: { consumer: ['select', 'delete'], readonly: ['select'] },
  transport_delivery: { consumer: ['select', 'update (attempts, rest_until)', 'delete'], readonly: ['select'] },
}

/** Who may execute a function, by its name. */
export const functionGrants: Readonly<Record<string, readonly GrantedRole[]>> = {
  database_identity: ['app', 'relay', 'consumer', 'readonly'],

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
  claim_command: ['app'],

  lock_letters: ['consumer'],

  transport_publish: ['relay'],
  transport_subscribe: ['consumer'],
  transport_seek: ['consumer'],
  transport_rewind: ['consumer'],
  transport_lease: ['consumer'],
  transport_lane_of: ['consumer'],
  transport_horizon: ['consumer'],
  transport_sweep: ['consumer'],
  transport_sweep_topic: ['consumer'],
  transport_unsubscribe: [],
  transport_lock_topic: [],
  transport_fill: [],
}

/** The name of a schema's group role. */
export function groupRole(schema: string, role: GroupRole): string {
  const full = `${schema}_${role}`
  if (full.length <= 63) return full
  throw new WaybillError(
    'INVALID_OPTION',
    `schema: "${schema}" is too long for roles named after it: at most ${63 - '_consumer'.length} characters.`,
  )
}
