/**
 * The tables of a consumer, and those that its projections and handlers write in the simulations.
 */
import { Table } from './mvcc.ts'

export interface InboxRow {
  readonly consumer: string
  readonly generation: number
  readonly eventId: string
}

export interface Position {
  readonly consumer: string
  readonly generation: number
  readonly type: string
  readonly id: string
  readonly version: number
  readonly waiting: number
  readonly heldBy: string | null
  readonly takenFrom: number | null
  readonly takenTo: number | null
  readonly overlapped: number | null
  readonly jumpedFrom: number | null
}

export interface Attempt {
  readonly consumer: string
  readonly generation: number
  readonly eventId: string
  readonly attempts: number
  readonly unfinished: number
}

export interface StoredMessage {
  readonly seq: number
  readonly key: bigint
  readonly lane: number
  readonly state: number
  readonly consumer: string
  readonly generation: number
  readonly eventId: string
  readonly type: string
  readonly id: string
  readonly version: number
  readonly attempts: number
  readonly topic: string
  readonly orderingKey: string | null
  readonly messageId: string
  readonly attributes: string
  readonly body: Uint8Array
  readonly publishedAt: string
  readonly receivedAt: number
  readonly nextAttemptAt: number | null
  /** When that was set. */
  readonly startedAt: number | null
}

export interface InboxLane {
  readonly consumer: string
  readonly lane: number
  readonly token: string | null
  /** The process that took it. */
  readonly lockedBy: string | null
  readonly lockedAt: number | null
  readonly expiresAt: number | null
}

/** Rules of the SQL that a test may break, to see that it is missed. */
export type InboxRule =
  | 'a duplicate waits for the first'
  | 'what waits is counted'
  | 'a lane is fenced'
  | 'a position never goes back'
  | 'a rest from the future has ended'

export interface InboxStore {
  readonly broken: ReadonlySet<InboxRule>
  readonly consumer: Table<{ readonly name: string }>
  readonly inbox: Table<InboxRow>
  readonly position: Table<Position>
  readonly attempt: Table<Attempt>
  readonly message: Table<StoredMessage>
  readonly lane: Table<InboxLane>
}

export function inboxStore(broken: readonly InboxRule[] = []): InboxStore {
  const byEvent = (row: { readonly consumer: string; readonly generation: number; readonly eventId: string }): string =>
    `${row.consumer} ${row.generation} ${row.eventId}`
  const dedupes = !broken.includes('a duplicate waits for the first')
  return {
    broken: new Set(broken),
    consumer: new Table('consumer', [{ name: 'consumer_pkey', key: ({ name }) => name }]),
    inbox: new Table<InboxRow>('inbox', dedupes ? [{ name: 'inbox_pkey', key: byEvent }] : []),
    position: new Table('consumer_position', [
      { name: 'consumer_position_pkey', key: (row) => `${row.consumer} ${row.generation} ${row.type}\n${row.id}` },
    ]),
    attempt: new Table<Attempt>('delivery_attempt', [{ name: 'delivery_attempt_pkey', key: byEvent }]),
    message: new Table<StoredMessage>('inbox_message', [
      { name: 'inbox_message_consumer_generation_event_id_key', key: byEvent },
      {
        name: 'inbox_message_head_idx',
        key: (row) =>
          row.state === 1 || row.state === 3 ? `${row.consumer} ${row.generation} ${row.lane} ${row.key}` : undefined,
      },
    ]),
    lane: new Table('inbox_lane', [{ name: 'inbox_lane_pkey', key: (row) => `${row.consumer} ${row.lane}` }]),
  }
}
