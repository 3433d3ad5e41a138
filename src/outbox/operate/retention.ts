/**
 * Removes published events, receipts and sources of emitted events when their time is over, and keeps up with the writers.
 *
 * Never an event that the broker has not confirmed: each candidate is locked, and looked up after that. Any number of
 * instances share the work. While a connector reads the outbox by a replication slot, an event goes only after that slot
 * has confirmed it.
 *
 * A sweep follows the ids, which carry their time; a full batch goes on at once, unless nothing of it could go: old
 * events that wait for the broker are passed by slowly. Between sweeps a slow walk over the tables, from a place drawn at
 * random, finds the rows whose ids do not.
 *
 * A statement that is never answered, because its connection is dead, is given up. If it lands all the same, it has removed what
 * somebody else would have: each looks at what there is, and not at what was seen before.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Service } from '../../core/service/lifetime.ts'
import { loop, type Pass } from '../../core/service/loop.ts'
import { resolve, wholeBetween } from '../../core/options.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import { first, one, type Queryable } from '../../postgres/query/database.ts'
import { removalMs, withDeadlines } from '../../postgres/transaction/deadline.ts'
import { cdcCommand, selectDispatching } from '../tables/cdc-switch.sql.ts'
import type { Outbox } from '../outbox.ts'
import {
  expireRows,
  selectBarrier,
  selectLimit,
  selectSlot,
  selectWalkStart,
  type ExpiredRows,
  type Expiring,
  type ExpiryLimit,
  type SweepPlace,
} from '../tables/retention.sql.ts'

export interface OutboxRetentionOptions {
  readonly db: Queryable
  readonly outbox: Pick<Outbox, 'tables'>
  /** How long an event is kept, for replays and inspection, from when it was added; one that is not published yet stays until it is. @default 3 days */
  readonly eventsMs?: number
  /** @default 3 days */
  readonly receiptsMs?: number
  /** How long the sources of emitted events are kept: longer than any replay reaches back. @default 35 days */
  readonly sourcesMs?: number
  /** Rows in one transaction. @default 50_000 */
  readonly batchSize?: number
  /** The wait after a pass that found little to remove. @default 5_000 */
  readonly idleMs?: number
  /** The replication slot of the connector that reads the outbox, if one does. @default none */
  readonly slot?: string | undefined
  readonly signals?: SignalBus
  readonly clock?: Clock
}

export interface OutboxRetention extends Service {
  /** Removes one batch of each kind; `more` if there may be another to remove. */
  readonly pass: Pass
  /** Sweeps to the end once, past what cannot go, or until `signal` aborts. */
  once(signal: AbortSignal): Promise<void>
}

type Settings = Required<OutboxRetentionOptions>

export function createOutboxRetention(options: OutboxRetentionOptions): OutboxRetention {
  const resolved = resolveOptions(options)
  const settings = { ...resolved, db: withDeadlines(resolved.db, { statementMs: removalMs, clock: resolved.clock }) }
  const { db, idleMs, signals, clock, eventsMs, receiptsMs, sourcesMs } = settings
  const name = `outbox retention ${settings.outbox.tables.schema}`
  const limitOf = async (ageMs: number): Promise<ExpiryLimit> => ({
    olderThanMs: (await one(db, selectLimit(ageMs))).older_than_ms,
    endedBefore: null,
  })
  const sweeps = {
    receipts: createSweep(settings, 'receipts', () => limitOf(receiptsMs)),
    sources: createSweep(settings, 'sources', () => limitOf(sourcesMs)),
    events: createSweep(settings, 'events', settings.slot === undefined ? () => limitOf(eventsMs) : createSlotLimit(settings)),
  }
  /** One that fails does not keep the others from their turn. What went is told, and then the failure. */
  const sweepAll = async (): Promise<Round> => {
    const removed = { events: 0, receipts: 0, sources: 0 }
    const swept: Swept[] = []
    const failures: unknown[] = []
    for (const what of ['receipts', 'sources', 'events'] as const) {
      try {
        const batch = await sweeps[what]()
        removed[what] = batch.removed
        swept.push(batch)
      } catch (error) {
        failures.push(error)
      }
    }
    if (swept.some((each) => each.removed > 0)) signals.emit('outbox.retained', removed)
    return { swept, failures }
  }
  const pass: Pass = async () => {
    const { swept, failures } = await sweepAll()
    if (failures.length > 0) throw failures[0]
    return swept.some(({ removed, more }) => more && removed > 0) ? 'more' : 'idle'
  }
  return {
    name,
    pass,
    once: async (signal) => {
      while (!signal.aborted) {
        const { swept, failures } = await sweepAll()
        if (swept.some(({ more }) => more)) continue
        if (failures.length > 0) throw failures[0]
        return
      }
    },
    run: (life) =>
      loop(pass, life, {
        idleMs: () => idleMs,
        onError: (error, failures, delayMs) => signals.emit('service.failed', { service: name, error, failures, delayMs }),
        clock,
      }),
  }
}

interface Swept {
  readonly removed: number
  /** It is not at its end, or finds so much that it goes round again. */
  readonly more: boolean
}

/** One batch of each kind, but for those that failed. */
interface Round {
  readonly swept: readonly Swept[]
  readonly failures: readonly unknown[]
}

type Sweep = () => Promise<Swept>

const beginning = '00000000-0000-0000-0000-000000000000'
const blocksOfAWalk = 512
/** A walk that finds this much in one step is behind, and goes on at once. */
const manyRows = 1_000

/** One call, one batch along the ids; when those are done, one step of the walk. */
function createSweep(
  { db, outbox, batchSize }: Settings,
  what: Expiring,
  limitOf: () => Promise<ExpiryLimit | undefined>,
): Sweep {
  let after = beginning
  let block: number | undefined
  return async () => {
    const limit = await limitOf()
    if (limit === undefined) return { removed: 0, more: false }
    const step = (place: SweepPlace): Promise<ExpiredRows> =>
      one(db, expireRows(outbox.tables, what, { limit, place, batchSize }))
    const byId = await step({ after })
    after = byId.done ? beginning : (byId.last ?? beginning)
    if (!byId.done) return { removed: byId.removed, more: true }
    block ??= (await one(db, selectWalkStart(outbox.tables, what, blocksOfAWalk))).block
    const walked = await step({ block })
    block = walked.done ? 0 : block + blocksOfAWalk
    return { removed: byId.removed + walked.removed, more: walked.removed >= manyRows }
  }
}

/** Draws a line in the log and waits until the slot has passed it; behind it everything may go. Then it draws the next. */
function createSlotLimit({ db, outbox, slot = '', eventsMs }: Settings): () => Promise<ExpiryLimit | undefined> {
  let confirmed: ExpiryLimit | undefined
  let drawn: { readonly limit: ExpiryLimit; readonly lsn: string } | undefined
  return async () => {
    if (drawn === undefined) {
      const row = await one(db, selectBarrier(eventsMs))
      drawn = { limit: { olderThanMs: row.older_than_ms, endedBefore: row.ended_before }, lsn: row.lsn }
    }
    const state = await first(db, selectSlot(slot, drawn.lsn))
    if (state === undefined || state.lost) {
      const { dispatching } = await one(db, selectDispatching(outbox.tables))
      throw noSlot(slot, { schema: outbox.tables.schema, isLost: state !== undefined, dispatching })
    }
    if (state.reached) {
      confirmed = drawn.limit
      drawn = undefined
    }
    return confirmed
  }
}

function noSlot(
  slot: string,
  { schema, isLost, dispatching }: { readonly schema: string; readonly isLost: boolean; readonly dispatching: boolean },
): WaybillError {
  const off = (lost = ''): string => cdcCommand(schema, `off --slot ${slot}${lost}`)
  const remedy = dispatching
    ? `Relays publish this outbox, so retention needs no slot: take it out of its options. Only if \`${off()}\` did not come to its end, run that again first.`
    : `If the connector reads another slot, name that. If the slot is gone, run \`${off(' --lost')}\`: relays publish again what may be missing.`
  return new WaybillError(
    'REFUSED',
    `Retention keeps every event: the replication slot "${slot}" ${isLost ? 'has lost its log' : 'is not in this database'}, so nobody can say what its connector has read. ${remedy}`,
  )
}

function resolveOptions(given: OutboxRetentionOptions): Settings {
  const { eventsMs, receiptsMs, sourcesMs, batchSize, idleMs } = defaults.outboxRetention
  const age = wholeBetween(0, 10 * 365 * 86_400_000)
  return resolve<Settings>(
    'outbox retention',
    {
      db: given.db,
      outbox: given.outbox,
      eventsMs,
      receiptsMs,
      sourcesMs,
      batchSize,
      idleMs,
      slot: undefined,
      signals: defaultSignals,
      clock: systemClock,
    },
    given,
    {
      eventsMs: age,
      receiptsMs: age,
      sourcesMs: age,
      batchSize: wholeBetween(1, 500_000),
      idleMs: wholeBetween(1, 3_600_000),
      slot: (slot) => slot === undefined || /^[a-z0-9_]{1,63}$/.test(slot) || 'must be the name of a replication slot',
    },
  )
}
