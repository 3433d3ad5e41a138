/**
 * The tables of the outbox, as far as the statements that are simulated touch them.
 */
import { Table } from './mvcc.ts'

export interface AggregateVersion {
  readonly type: string
  readonly id: string
  readonly version: number
}

export interface OutboxEvent {
  readonly id: string
  readonly topic: string
  readonly aggregateType: string
  readonly aggregateId: string
  readonly version: number
  readonly eventType: string
  readonly schemaVersion: number
  readonly contentType: string
  readonly payload: Uint8Array
  readonly headers: string
  readonly occurredAt: number
}

export interface Dispatch {
  readonly lane: number
  readonly seq: number
  readonly key: bigint
  readonly eventId: string
  readonly state: number
  readonly attempts: number
  readonly void: boolean
  readonly nextRetryAt: number | null
  readonly parkedAt: number | null
  readonly lastError: string | null
}

export interface Lane {
  readonly lane: number
  readonly token: string | null
  readonly lockedBy: string | null
  readonly lockedAt: number | null
  readonly expiresAt: number | null
}

export interface Receipt {
  readonly eventId: string
  readonly attempts: number
  readonly relay: string
  readonly messageId: string
}

/** Rules of the SQL that a test may break, to see that it is missed. */
export type OutboxRule =
  | 'a head that goes is followed'
  | 'the fence locks'
  | 'what was confirmed is removed and nothing else'
  | 'a parked head blocks'
  | 'the version comes before the place'
  | 'a lease from the future has ended'

export interface OutboxStore {
  readonly lanes: number
  readonly broken: ReadonlySet<OutboxRule>
  readonly version: Table<AggregateVersion>
  readonly outbox: Table<OutboxEvent>
  readonly source: Table<{ readonly source: string; readonly eventId: string; readonly ordinal: number; readonly id: string }>
  readonly dispatch: Table<Dispatch>
  readonly lane: Table<Lane>
  readonly worker: Table<{ readonly worker: string; readonly seenAt: number }>
  readonly receipt: Table<Receipt>
  readonly pause: Table<{ readonly type: string; readonly id: string }>
  readonly audit: Table<{ readonly action: string; readonly details: string }>
}

export function outboxStore(lanes: number, broken: readonly OutboxRule[] = []): OutboxStore {
  return {
    lanes,
    broken: new Set(broken),
    version: new Table('aggregate_version', [{ name: 'aggregate_version_pkey', key: (row) => `${row.type}\n${row.id}` }]),
    outbox: new Table('outbox', [
      { name: 'outbox_pkey', key: (row) => row.id },
      {
        name: 'outbox_aggregate_type_aggregate_id_version_key',
        key: (row) => `${row.aggregateType}\n${row.aggregateId}\n${row.version}`,
      },
    ]),
    source: new Table('outbox_source', [
      { name: 'outbox_source_pkey', key: (row) => `${row.source} ${row.eventId} ${row.ordinal}` },
    ]),
    dispatch: new Table('outbox_dispatch', [
      { name: 'outbox_dispatch_pkey', key: (row) => `${row.lane} ${row.state} ${row.seq}` },
      { name: 'outbox_dispatch_head_idx', key: (row) => (isHead(row) ? `${row.lane} ${row.key}` : undefined) },
    ]),
    lane: new Table('outbox_lane', [{ name: 'outbox_lane_pkey', key: (row) => String(row.lane) }]),
    worker: new Table('outbox_relay', [{ name: 'outbox_relay_pkey', key: (row) => row.worker }]),
    receipt: new Table('outbox_receipt'),
    pause: new Table('outbox_pause', [{ name: 'outbox_pause_pkey', key: (row) => `${row.type}\n${row.id}` }]),
    audit: new Table('audit_log'),
  }
}

/** A row that blocks what stands behind it. */
export function isHead({ state }: Pick<Dispatch, 'state'>): boolean {
  return state === 1 || state === 3
}
