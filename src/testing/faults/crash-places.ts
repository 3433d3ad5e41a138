/**
 * Every place at which a process of each role may be crashed: between any two of its steps, and while a request is under way.
 *
 * A place stands around a call of a port, and a statement is known by its text. The crash matrix is made from this list; a
 * place that no process passes any more, because a statement was renamed, is found by it, not by a crash that never comes.
 * A step that has no place has a reason, or the test beside this file fails.
 */
import type { KafkaClient } from '../../transport/kafka/client/kafka-client.ts'

/** What a process does for a living. */
export type CrashRole = 'writer' | 'command server' | 'relay' | 'consumer' | 'stored consumer'

/** Where around its port a place stands. */
export type CrashMoment =
  /** Around a statement, of a transaction or outside. `own`: any statement that is the service's, not ours. */
  | { readonly statement: RegExp | 'own'; readonly when: 'before' | 'during' | 'after' }
  /**
   * Around BEGIN and COMMIT. `commit-sent`: it left the process, and the answer was not read. `of`: only of transactions in
   * which such a statement was sent.
   */
  | { readonly transaction: 'begun' | 'committing' | 'commit-sent' | 'committed'; readonly of?: RegExp }
  /** Around a request to the broker, or a delivery. */
  | { readonly publish: 'before' | 'during' | 'after' }
  | { readonly delivery: 'received' | 'acking' | 'acked' }
  /** Around the cache of commands. */
  | { readonly cache: 'claim' | 'complete'; readonly when: 'before' | 'after' }
  /** Around a request to Kafka. `failed`: a heartbeat was answered with the news that the group rebalances. */
  | { readonly kafka: KafkaCall; readonly when: 'before' | 'during' | 'after' | 'failed' }

/** The requests to Kafka between which a process can be crashed. */
export type KafkaCall = Extract<
  keyof KafkaClient,
  | 'initProducer'
  | 'produce'
  | 'joinGroup'
  | 'syncGroup'
  | 'committedOffsets'
  | 'fetch'
  | 'heartbeat'
  | 'commitOffsets'
  | 'leaveGroup'
>

export interface CrashPlace {
  readonly role: CrashRole
  /** Unique in its role. */
  readonly name: string
  readonly at: CrashMoment
  /** How often a process has to come here before it is the place that is meant. @default 1 */
  readonly onHit?: number
}

const after = (statement: RegExp | 'own'): CrashMoment => ({ statement, when: 'after' })

const transaction: Readonly<Record<'begun' | 'committing' | 'commit sent' | 'committed', CrashMoment>> = {
  begun: { transaction: 'begun' },
  committing: { transaction: 'committing' },
  'commit sent': { transaction: 'commit-sent' },
  committed: { transaction: 'committed' },
}

/** A member of a consumer group, from its first join to its leave. */
const group: Readonly<Record<string, Named>> = {
  'group joined': { kafka: 'joinGroup', when: 'after' },
  'partitions assigned': { kafka: 'syncGroup', when: 'after' },
  'offsets read': { kafka: 'committedOffsets', when: 'after' },
  'records fetched': { kafka: 'fetch', when: 'after' },
  'offsets committing': { kafka: 'commitOffsets', when: 'before' },
  'offset commit sent': { kafka: 'commitOffsets', when: 'during' },
  'offsets committed': { kafka: 'commitOffsets', when: 'after' },
  'rebalance heard': { kafka: 'heartbeat', when: 'failed' },
  // Everything in hand was drained, and its offsets are committed.
  'joining again': { at: { kafka: 'joinGroup', when: 'before' }, onHit: 2 },
  leaving: { kafka: 'leaveGroup', when: 'before' },
}

const confirm = /\bconfirmed as materialized\b/
const startAttempts = /^\s*insert into \S*"delivery_attempt" as a \([^)]*\bunfinished\b/
const chargeAttempt = /^\s*insert into \S*"delivery_attempt" as a \([^)]*\bfirst_error\b/
const bury = /^\s*insert into \S*"dead_letter"/
const settle = /"outbox_settle"\(/

type Named = CrashMoment | Pick<CrashPlace, 'at' | 'onHit'>

/** An event that fails, is given up after its second attempt, and is redriven. */
const burial: Readonly<Record<string, Named>> = {
  'attempt charged': after(chargeAttempt),
  'last attempt charged': { at: after(chargeAttempt), onHit: 2 },
  'letter written': after(bury),
  'aggregate held': after(/^\s*insert into \S*"consumer_position" as p \([^)]*\bheld_by\b/),
  'burial commit sent': { transaction: 'commit-sent', of: bury },
  // It is not acknowledged yet.
  buried: { transaction: 'committed', of: bury },
  'letter redriven': after(/^\s*update \S*"dead_letter" d\s+set state = 'redriven'/),
}

const places: Readonly<Record<CrashRole, Readonly<Record<string, Named>>>> = {
  writer: {
    ...transaction,
    'state written': after('own'),
    'event added': after(/"add_events?"\(/),
  },
  'command server': {
    ...transaction,
    'cache claimed': { cache: 'claim', when: 'after' },
    'marker claimed': after(/"claim_command"\(/),
    'state written': after('own'),
    'events added': after(/"add_events?"\(/),
    'response kept': after(/^\s*select \S*"answer_command"/),
    completing: { cache: 'complete', when: 'before' },
    completed: { cache: 'complete', when: 'after' },
  },
  relay: {
    'lanes acquired': after(/^\s*with free as materialized[^;]*"outbox_lane"/),
    'lanes renewed': after(/^\s*with mine as materialized[^;]*"outbox_lane"[^;]*set locked_at = clock_timestamp/),
    'rows read': after(/"outbox_read"\(/),
    publishing: { publish: 'before' },
    'publish under way': { publish: 'during' },
    published: { publish: 'after' },
    confirming: { statement: confirm, when: 'before' },
    'confirm sent': { statement: confirm, when: 'during' },
    confirmed: after(confirm),
    settling: { statement: settle, when: 'before' },
    settled: after(settle),
    'producer opened': { kafka: 'initProducer', when: 'after' },
    // The first request has to open a connection, so the second is the one that leaves at once.
    'produce sent': { at: { kafka: 'produce', when: 'during' }, onHit: 2 },
    produced: { kafka: 'produce', when: 'after' },
  },
  consumer: {
    ...transaction,
    received: { delivery: 'received' },
    'attempts started': after(startAttempts),
    'inbox claimed': after(/\bfresh as \(\s*insert into \S*"inbox"/),
    'projection written': after(/\bjson_populate_recordset\b/),
    'effect written': after('own'),
    'waiting stored': after(/^\s*with stored as \(\s*insert into \S*"inbox_message"/),
    'waiting removed': after(/^\s*with gone as \([^;]*"inbox_message"[^;]*\bset waiting = /),
    acking: { delivery: 'acking' },
    acked: { delivery: 'acked' },
    ...burial,
    ...group,
  },
  'stored consumer': {
    ...transaction,
    received: { delivery: 'received' },
    'message stored': after(/^\s*insert into \S*"inbox_message"/),
    acking: { delivery: 'acking' },
    acked: { delivery: 'acked' },
    'lanes taken': after(/^\s*with free as materialized[^;]*"inbox_lane"/),
    'messages read': after(/^\s*with mine as materialized[^;]*"inbox_lane"[^;]*\bwaited_ms\b/),
    'lanes fenced': after(/^\s*select l\.lane from \S*"inbox_lane"[^;]*\bfor key share\b/),
    'attempts started': after(startAttempts),
    'inbox claimed': after(/\bfresh as \(\s*insert into \S*"inbox"/),
    'effect written': after('own'),
    'messages removed': after(/^\s*with gone as \([^;]*"inbox_message"[^;]*\breturning m\.lane\b/),
    'lanes given back': after(/^\s*update \S*"inbox_lane" l set lock_token = null/),
    ...burial,
    ...group,
  },
}

/** All places, role by role. */
export const crashPlaces: readonly CrashPlace[] = Object.entries(places).flatMap(([role, named]) =>
  Object.entries(named).map(([name, place]) => ({ role: role as CrashRole, name, ...('at' in place ? place : { at: place }) })),
)

/** The failpoint of a place, as `startChild` arms it. */
export function crashPointName({ role, name }: Pick<CrashPlace, 'role' | 'name'>): string {
  return `${role}: ${name}`
}
