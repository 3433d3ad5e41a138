/**
 * A service at one glance: what waits and how old it is, who works on it, what is held, paused or given up, how far consumers
 * are, and how large the tables have become.
 *
 * It only reads, as any role that sees the tables (`…_readonly`), and stays quick with millions of rows: counts stop at a bound
 * and say so, sizes are the server's estimates. Each part has a moment of its own; nothing is locked for a common one.
 */
import { commandTables, selectLag } from '../../command/model/command.sql.ts'
import { countWaiting, inboxTables, pauseId, type Scope } from '../../consumer/tables/inbox.sql.ts'
import { selectAtRest, selectReaders } from '../../consumer/tables/readers.sql.ts'
import { countsOfRefused } from '../../consumer/failure/refused-messages.ts'
import { defaults } from '../../core/defaults.ts'
import { resolve, wholeBetween, type Check } from '../../core/options.ts'
import { selectDispatching } from '../../outbox/tables/cdc-switch.sql.ts'
import type { Pause } from '../../outbox/operate/pause.ts'
import { listPauses } from '../../outbox/operate/pause.ts'
import { outboxTables, type OutboxTables } from '../../outbox/tables/outbox.sql.ts'
import { first, one, rows, type Queryable } from '../../postgres/query/database.ts'
import { ageByClock } from '../../postgres/clock/witnessed-clock.ts'
import { readWitnessed } from '../../postgres/clock/witnessed-clock.sql.ts'
import { selectRelays } from './outbox.sql.ts'
import {
  selectApplied,
  selectBacklog,
  selectConsumers,
  selectDeadCounts,
  selectHeads,
  selectHeldAggregates,
  selectLeases,
  selectPublishDelay,
  selectSizes,
  selectStoredCounts,
  selectWhere,
  type ConsumerRow,
} from './status.sql.ts'

export interface StatusOptions {
  readonly db: Queryable
  /** @default 'waybill' */
  readonly schema?: string
  /** How many held keys and aggregates are named, at most. @default 5 */
  readonly top?: number
  /** How long markers live (`ttlMs` of `createMarkerCleanup`), for the lag of their clean-up. @default 3_600_000 */
  readonly markerTtlMs?: number | undefined
}

/** Of the newest events; `undefined` where nothing is known. */
export interface RecentDelays {
  readonly sample: number
  readonly p50Ms: number | undefined
  readonly p95Ms: number | undefined
  /** Since the last one. */
  readonly lastMs: number | undefined
}

/** An event that failed, and stops those behind it. */
export interface HeldKey {
  readonly eventId: string
  readonly aggregateType: string | undefined
  readonly aggregateId: string | undefined
  readonly version: string | undefined
  readonly state: 'PARKED' | 'RELEASED'
  readonly attempts: number
  readonly nextRetryAt: string | undefined
  readonly error: string | undefined
  /** Events that are held behind it. */
  readonly behind: number
}

export interface OutboxReport {
  /** `false` while a connector reads the outbox in place of relays. */
  readonly dispatching: boolean
  readonly due: number
  readonly retrying: number
  readonly held: number
  readonly parked: number
  /** The counts are too large to be counted quickly. */
  readonly estimated: boolean
  /** The age of the oldest event that could go out: due, or failed and to be tried again. */
  readonly lagMs: number
  /** The age of the oldest that waits for whatever reason. */
  readonly oldestAgeMs: number
  readonly highestAttempts: number
  readonly publishDelay: RecentDelays
  readonly lanes: {
    readonly total: number
    readonly owned: number
    readonly unowned: number
    /** Leases whose renewal is late. */
    readonly expiring: number
  }
  readonly relays: readonly { readonly relay: string; readonly lanes: number; readonly seenMs: number }[]
  readonly heldKeys: readonly HeldKey[]
  readonly pauses: readonly Pause[]
}

export interface ConsumerReport {
  readonly consumer: string
  readonly generation: number
  readonly rebuilding: boolean
  /** Its projections were complete once. */
  readonly complete: boolean
  readonly paused: { readonly by: string; readonly at: string } | undefined
  /** From the moment that an event's id carries to its effect. */
  readonly delay: RecentDelays
  /** What came too early, or stands behind a dead letter or a pause. */
  readonly waiting: { readonly messages: number; readonly aggregates: number; readonly held: number; readonly oldestMs: number }
  /** In stored mode: what is stored and not applied. */
  readonly stored: {
    readonly due: number
    readonly retrying: number
    readonly held: number
    readonly estimated: boolean
    readonly lagMs: number
  }
  /** Its running instances, and of how many versions they are: of more than one while a deploy is half done. */
  readonly instances: { readonly running: number; readonly versions: number }
  /** What was put aside for another version of which no instance runs. */
  readonly atRest: readonly { readonly aggregateType: string; readonly eventType: string; readonly messages: number }[]
  readonly deadLetters: readonly { readonly reason: string; readonly count: number }[]
  /** Messages whose signature is missing or wrong, as many as are kept of each reason. */
  readonly refused: readonly { readonly reason: string; readonly count: number }[]
  readonly heldAggregates: readonly {
    readonly aggregateType: string
    readonly aggregateId: string
    readonly version: string
    readonly waiting: number
    /** Somebody paused it. */
    readonly paused: boolean
    /** The event of the dead letter that holds it. */
    readonly heldBy: string | undefined
  }[]
}

export interface Status {
  readonly service: string
  readonly schema: string
  /** By the database's clock. */
  readonly at: string
  readonly outbox: OutboxReport
  readonly consumers: readonly ConsumerReport[]
  readonly commands: { readonly markers: number; readonly cleanupLagMs: number }
  /** Estimated rows, and bytes with indexes, by table. */
  readonly sizes: Readonly<Record<string, { readonly rows: number; readonly bytes: number }>>
}

/** Rows of one lane and state that are counted; a lane with more is estimated. */
const laneBound = 500
const sampleSize = 500
const deadBound = 100_000
const restBound = 100_000

/** Says what is wrong with a TTL of markers, as clean-up itself would. */
export const checkMarkerTtl: Check<number> = wholeBetween(1, Number.MAX_SAFE_INTEGER)

/** Everything at one glance; SCHEMA_MISMATCH and the like are the caller's to check before. */
export async function status(options: StatusOptions): Promise<Status> {
  const { db, schema, top, markerTtlMs } = resolveOptions(options)
  const where = await one(db, selectWhere(schema))
  const sizes = await rows(db, selectSizes(schema))
  const keepMs = Math.ceil(markerTtlMs * (1 + defaults.markerCleanup.marginPercent / 100))
  const aged = ageByClock(await first(db, readWitnessed(schema)))
  const lag = await first(db, selectLag(commandTables(schema), aged(keepMs)))
  return {
    service: where.service,
    schema,
    at: where.at,
    outbox: await outboxReport(db, outboxTables(schema), top),
    consumers: await consumerReports(db, schema, top),
    commands: {
      markers: sizes.find(({ table }) => table === 'command_marker')?.rows ?? 0,
      cleanupLagMs: Math.max(0, Number(lag?.lag_ms ?? 0)),
    },
    sizes: Object.fromEntries(sizes.map(({ table, rows: count, bytes }) => [table, { rows: count, bytes }])),
  }
}

interface Settings extends Required<StatusOptions> {
  readonly markerTtlMs: number
}

function resolveOptions(options: StatusOptions): Settings {
  return resolve<Settings>(
    'status',
    { db: options.db, schema: defaults.schema, top: 5, markerTtlMs: defaults.markerCleanup.ttlMs },
    options,
    { markerTtlMs: checkMarkerTtl },
  )
}

async function outboxReport(db: Queryable, tables: OutboxTables, top: number): Promise<OutboxReport> {
  const { leaseMs, renewMs } = defaults.relay
  const backlog = await one(db, selectBacklog(tables, laneBound))
  const leases = await one(db, selectLeases(tables, leaseMs - 2 * renewMs))
  const relays = await rows(db, selectRelays(tables, leaseMs))
  const heads = backlog.retrying + backlog.parked === 0 ? [] : await rows(db, selectHeads(tables, top))
  return {
    dispatching: (await one(db, selectDispatching(tables))).dispatching,
    due: backlog.due,
    retrying: backlog.retrying,
    held: backlog.held,
    parked: backlog.parked,
    estimated: backlog.estimated,
    lagMs: Math.max(0, backlog.oldest_due_ms ?? 0),
    oldestAgeMs: Math.max(0, backlog.oldest_ms ?? 0),
    highestAttempts: backlog.highest_attempts,
    publishDelay: toDelays(await one(db, selectPublishDelay(tables, sampleSize))),
    lanes: { total: leases.lanes, owned: leases.owned, unowned: leases.unowned, expiring: leases.expiring },
    relays: relays.map(({ relay, lanes, seen_ms }) => ({ relay, lanes, seenMs: seen_ms })),
    heldKeys: heads.map((head) => ({
      eventId: head.event_id,
      aggregateType: head.aggregate_type ?? undefined,
      aggregateId: head.aggregate_id ?? undefined,
      version: head.version ?? undefined,
      state: head.state,
      attempts: head.attempts,
      nextRetryAt: head.next_retry_at ?? undefined,
      error: head.error ?? undefined,
      behind: head.behind,
    })),
    pauses: await listPauses(db, { tables }),
  }
}

async function consumerReports(db: Queryable, schema: string, top: number): Promise<readonly ConsumerReport[]> {
  const tables = inboxTables(schema)
  const dead = await rows(db, selectDeadCounts(tables, deadBound))
  const readers = await rows(db, selectReaders(tables))
  const refused = await countsOfRefused(db, schema)
  const reports: ConsumerReport[] = []
  for (const row of await rows(db, selectConsumers(tables))) {
    const scope: Scope = { tables, consumer: row.name, generation: row.generation }
    const letters = dead.filter(({ consumer }) => consumer === row.name)
    const digests = readers.flatMap(({ consumer, digest }) => (consumer === row.name ? digest : []))
    const distrusted = refused.filter(({ consumer }) => consumer === row.name)
    reports.push(await consumerReport(db, { scope, row, letters, digests, refused: distrusted, top }))
  }
  return reports
}

interface ConsumerParts {
  readonly scope: Scope
  readonly row: ConsumerRow
  readonly letters: readonly { readonly reason: string; readonly count: number }[]
  /** Of what each running instance reads. */
  readonly digests: readonly string[]
  readonly refused: readonly { readonly reason: string; readonly count: number }[]
  readonly top: number
}

async function consumerReport(
  db: Queryable,
  { scope, row, letters, digests, refused, top }: ConsumerParts,
): Promise<ConsumerReport> {
  const waiting = await one(db, countWaiting(scope))
  const stored = await one(db, selectStoredCounts(scope, laneBound))
  const held = await rows(db, selectHeldAggregates(scope, top))
  const atRest = await rows(db, selectAtRest(scope, restBound))
  return {
    consumer: row.name,
    generation: row.generation,
    rebuilding: row.rebuilding,
    complete: row.complete,
    paused: row.paused ? { by: row.paused_by ?? '', at: row.paused_at ?? '' } : undefined,
    delay: toDelays(await one(db, selectApplied(scope, sampleSize))),
    waiting: {
      messages: waiting.messages,
      aggregates: waiting.aggregates,
      held: waiting.held,
      oldestMs: Math.max(0, Number(waiting.oldest_ms ?? 0)),
    },
    stored: {
      due: stored.due,
      retrying: stored.retrying,
      held: stored.held,
      estimated: stored.estimated,
      lagMs: Math.max(0, stored.oldest_ms ?? 0),
    },
    instances: { running: digests.length, versions: new Set(digests).size },
    atRest: atRest.map((each) => ({ aggregateType: each.aggregate_type, eventType: each.event_type, messages: each.messages })),
    deadLetters: letters.map(({ reason, count }) => ({ reason, count })),
    refused: refused.map(({ reason, count }) => ({ reason, count })),
    heldAggregates: held.map((each) => ({
      aggregateType: each.aggregate_type,
      aggregateId: each.aggregate_id,
      version: each.version,
      waiting: each.waiting,
      paused: each.held_by === pauseId,
      heldBy: each.held_by === pauseId ? undefined : (each.held_by ?? undefined),
    })),
  }
}

function toDelays(row: {
  readonly sample: number
  readonly p50_ms: number | null
  readonly p95_ms: number | null
  readonly last_ms: number | null
}): RecentDelays {
  return {
    sample: row.sample,
    p50Ms: row.p50_ms ?? undefined,
    p95Ms: row.p95_ms ?? undefined,
    lastMs: row.last_ms ?? undefined,
  }
}
