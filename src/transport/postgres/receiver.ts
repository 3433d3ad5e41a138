/**
 * One receiver of the Postgres transport: leases lanes, fetches from them within its bounds, hands out, and settles.
 *
 * Order per key holds because a key lives in one lane, a lane has one holder, and the holder reads it in order of seq. The
 * holder hands out only while its lease has surely not run out by its own, monotonic reckoning; when it may have, all that
 * is in hand is lost. Everything it writes is fenced by the lane's tenure. It reads by state and not by position, and skips
 * what rests only as far as all publishers have ended, so that one which commits late is never passed over. A statement that
 * is not answered in time has failed, and is sent again: a connection may be dead while others go on renewing the lease.
 */
import { randomUUID } from 'node:crypto'

import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { createWaker, loop, type Pace, type Waker } from '../../core/service/loop.ts'
import type { SignalBus } from '../../core/signals.ts'
import { unlessLate } from '../../core/service/abort.ts'
import { one, rows, type Queryable } from '../../postgres/query/database.ts'
import { withDeadlines } from '../../postgres/transaction/deadline.ts'
import type { ReceiveOptions, Receiver } from '../port/transport.ts'
import { Horizon } from './visibility-horizon.ts'
import { HeldDelivery, InHand } from './held-deliveries.ts'
import { LaneBook, type HeldLane } from './held-lanes.ts'
import { Settlements } from './settle.ts'
import {
  ackDeliveries,
  fetchDeliveries,
  leaseLanes,
  readHorizon,
  type FetchedRow,
  type LeasedLane,
  type TransportTables,
  countUnsettled,
} from './transport.sql.ts'

export interface ReceiverDeps {
  readonly db: Queryable
  readonly tables: TransportTables
  readonly subscription: number
  readonly options: ReceiveOptions
  readonly leaseMs: number
  readonly idleMs: (idlePasses: number) => number
  /** Woken when something was published in this process. */
  readonly waker: Waker
  readonly clock: Clock
  readonly lagMs: number
  readonly signals: SignalBus
}

/** The longest wait for an answer, unless a lease is longer. */
export const answerMs = 30_000

export class PostgresReceiver implements Receiver {
  readonly #deps: ReceiverDeps
  /** A deadline grows for statements of one kind, not for the others. */
  readonly #db: Queryable
  readonly #fetchDb: Queryable
  readonly #lagDb: Queryable
  /** A renewal is of no use when the lease has run out. */
  readonly #renewDb: Queryable
  #id = randomUUID()
  readonly #inHand = new InHand()
  readonly #lanes = new LaneBook()
  readonly #horizon = new Horizon()
  readonly #settlements: Settlements
  readonly #leaseWaker = createWaker()
  readonly #fetching = new AbortController()
  readonly #leasing = new AbortController()
  /** Whoever closes may end the wait for what is in hand, also after somebody else who closed with more patience. */
  readonly #aborting = new AbortController()
  readonly #loops: Promise<void>[] = []
  #closing: Promise<void> | undefined
  #validUntil = 0
  #full = false

  constructor(deps: ReceiverDeps) {
    this.#deps = deps
    const { db, tables, subscription, options, leaseMs, clock } = deps
    const within = (statementMs: number): Queryable => withDeadlines(db, { statementMs, grows: true, clock })
    const longestMs = Math.max(answerMs, leaseMs)
    this.#db = within(longestMs)
    this.#fetchDb = within(longestMs)
    this.#lagDb = within(longestMs)
    this.#renewDb = within(leaseMs)
    this.#settlements = new Settlements({
      db: this.#db,
      tables,
      subscription,
      inHand: this.#inHand,
      onError: options.onError,
      onSettled: (backAfterMs) => this.#settled(backAfterMs),
    })
  }

  /** Takes the first lanes and starts; rejects if the database cannot be reached, and may then be called again. */
  async start(): Promise<this> {
    // Nothing is in hand yet that could be lost meanwhile.
    await this.#lease(this.#db)
    const { waker, clock, idleMs, leaseMs, options } = this.#deps
    const onError = (error: unknown): void => options.onError(error instanceof Error ? error : new Error(String(error)))
    const backoff = { firstMs: Math.min(100, leaseMs / 5), maxMs: leaseMs / 5 }
    const run = (
      pass: () => Promise<'more' | 'idle'>,
      stop: AbortController,
      pace: { readonly idleMs: Pace['idleMs']; readonly waker?: Waker },
    ): void =>
      void this.#loops.push(loop(pass, { stopping: stop.signal, aborting: stop.signal }, { ...pace, onError, clock, backoff }))
    run(() => this.#fetch(), this.#fetching, { idleMs, waker })
    run(() => this.#renew(), this.#leasing, { idleMs: () => leaseMs / 3, waker: this.#leaseWaker })
    run(() => this.#watch(), this.#leasing, { idleMs: () => Math.max(this.#validUntil - clock.monotonicMs(), leaseMs / 20) })
    void reportLag({ ...this.#deps, db: this.#lagDb, isOurs: () => this.#lanes.hasFirst }, this.#leasing.signal)
    return this
  }

  close(aborting?: AbortSignal): Promise<void> {
    this.#closing ??= this.#close()
    if (aborting?.aborted === true) this.#aborting.abort()
    else aborting?.addEventListener('abort', () => this.#aborting.abort(), { once: true })
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#fetching.abort()
    await this.#inHand.drained(this.#aborting.signal)
    this.#leasing.abort()
    this.#lanes.loseAll()
    this.#inHand.loseOthers(() => false)
    // After the last renewal, or that would take the lanes again. A database that does not answer is not waited for.
    const leaving = Promise.all(this.#loops).then(() => this.#leave())
    await unlessLate(leaving, this.#deps.leaseMs, this.#deps.clock)
  }

  /** Lanes that are not given back, because the database does not answer, expire by themselves. */
  async #leave(): Promise<void> {
    const { db, tables, subscription, leaseMs, options } = this.#deps
    try {
      await rows(db, leaseLanes(tables, { subscription, receiver: this.#id, leaseMs, leaving: [], stays: false }))
    } catch (error) {
      options.onError(error as Error)
    }
  }

  async #lease(db: Queryable): Promise<void> {
    const { tables, subscription, leaseMs, clock } = this.#deps
    const leaving = this.#lanes.leaving((lane) => this.#inHand.uses(lane))
    const askedAt = clock.monotonicMs()
    const asking = rows(db, leaseLanes(tables, { subscription, receiver: this.#id, leaseMs, leaving, stays: true }))
    const leased = await asking.catch((error: unknown) => {
      // It may still land, and must not give back lanes that are ours again by then: we hold them under another name.
      if (leaving.length > 0) this.#id = randomUUID()
      throw error
    })
    if (this.#leasing.signal.aborted) return
    this.#takeOver(leased, askedAt)
  }

  #takeOver(leased: readonly LeasedLane[], askedAt: number): void {
    const before = this.#lanes.size
    this.#lanes.update(leased, (lane) => this.#inHand.uses(lane))
    this.#inHand.loseOthers(({ lane, tenure }) => this.#lanes.has(lane, tenure))
    this.#validUntil = askedAt + this.#deps.leaseMs
    if (leased.length > before) this.#deps.waker.wake()
  }

  async #renew(): Promise<'more' | 'idle'> {
    await this.#lease(this.#renewDb)
    return this.#lanes.leaving((lane) => this.#inHand.uses(lane)).length > 0 ? 'more' : 'idle'
  }

  /** Gives up what is in hand at the moment when the lease may have run out, however long a renewal takes. */
  #watch(): Promise<'idle'> {
    if (!this.#mayWork()) {
      this.#lanes.loseAll()
      this.#inHand.loseOthers(() => false)
    }
    return Promise.resolve('idle')
  }

  #mayWork(): boolean {
    return this.#deps.clock.monotonicMs() < this.#validUntil
  }

  async #fetch(): Promise<'more' | 'idle'> {
    const { tables, subscription, options, clock } = this.#deps
    const lanes = this.#lanes.open(clock.monotonicMs())
    const room = options.maxMessages - this.#inHand.count
    const roomBytes = options.maxBytes - this.#inHand.bytes
    const empty = this.#inHand.count === 0
    this.#full = room <= 0 || (roomBytes <= 0 && !empty) || this.#settlements.isBehind(options)
    if (this.#full || lanes.length === 0 || !this.#mayWork()) return 'idle'

    if (this.#horizon.isDue(clock.monotonicMs())) this.#horizon.see(await one(this.#db, readHorizon(tables)), clock.monotonicMs())
    this.#inHand.beginFetch()
    const { floorLife } = this.#lanes
    const askedAt = clock.monotonicMs()
    const fetched = await rows(
      this.#fetchDb,
      fetchDeliveries(tables, {
        subscription,
        lanes,
        window: Math.min(room, Math.max(50, Math.ceil((2 * room) / lanes.length))),
        decided: this.#horizon.decided,
        inHand: this.#inHand.excluded(),
        room,
        roomBytes,
        empty,
      }),
    )
    this.#full = true
    this.#lanes.scanned(clock.monotonicMs() - askedAt)
    this.#horizon.wanted = fetched.some(({ rests }) => rests === true)
    // Messages that came too late to be ours for sure are fetched again.
    if (!this.#mayWork() || this.#fetching.signal.aborted) return 'idle'
    this.#dropMissing(lanes, fetched)
    const asked = new Map(lanes.map((held) => [held.lane, held]))
    if (floorLife === this.#lanes.floorLife) this.#raiseFloors(asked, fetched)
    const handed = this.#handOut(asked, fetched)
    const removed = await this.#removeEmpty(asked, fetched)
    return handed + removed > 0 ? 'more' : 'idle'
  }

  #raiseFloors(asked: AskedLanes, fetched: readonly FetchedRow[]): void {
    for (const { lane, floor } of fetched) if (floor !== null) this.#lanes.raiseFloor(asked.get(lane) as HeldLane, floor)
  }

  /** A lane that did not come back is another's, or a seek began it anew. */
  #dropMissing(lanes: readonly HeldLane[], fetched: readonly FetchedRow[]): void {
    const still = new Set(fetched.filter(({ floor }) => floor !== null).map(({ lane }) => lane))
    const gone = lanes.filter((held) => !still.has(held.lane) && this.#lanes.holds(held))
    if (gone.length === 0) return
    for (const { lane } of gone) this.#lanes.lose(lane)
    this.#inHand.loseOthers(({ lane, tenure }) => this.#lanes.has(lane, tenure))
    this.#leaseWaker.wake()
  }

  #handOut(asked: AskedLanes, fetched: readonly FetchedRow[]): number {
    const { topic, onDelivery, onError } = this.#deps.options
    const messages = fetched.filter(isMessage).toSorted((a, b) => compareSeqs(a.seq, b.seq))
    let handed = 0
    for (const row of messages) {
      const lane = asked.get(row.lane) as HeldLane
      const key = row.key ?? undefined
      if (!this.#inHand.mayHand(row.seq, key) || !this.#lanes.mayHand(lane) || this.#fetching.signal.aborted) continue
      const held = new HeldDelivery(
        this.#settlements,
        { lane: row.lane, tenure: lane.tenure, seq: row.seq, key, bytes: row.bytes },
        {
          messageId: row.seq,
          topic,
          orderingKey: row.ordering_key ?? undefined,
          attributes: JSON.parse(row.attributes) as Record<string, string>,
          body: row.body,
          publishedAtMs: Number(row.published_at_ms),
          deliveryAttempt: row.attempts + 1,
        },
      )
      this.#inHand.hold(held)
      handed += 1
      try {
        onDelivery(held)
      } catch (cause) {
        onError(cause instanceof Error ? cause : new Error(String(cause)))
        void held.nack()
      }
    }
    return handed
  }

  /** A delivery whose message is gone, because somebody deleted it, can never be made: it would only stand in the way. */
  async #removeEmpty(asked: AskedLanes, fetched: readonly FetchedRow[]): Promise<number> {
    const { tables, subscription, options } = this.#deps
    const empty = fetched.flatMap(({ lane, seq, body }) =>
      seq === null || body !== null ? [] : [{ lane, seq, tenure: (asked.get(lane) as HeldLane).tenure }],
    )
    if (empty.length === 0) return 0
    const removed = await rows(this.#db, ackDeliveries(tables, subscription, empty))
    const ids = removed.map(({ seq }) => seq)
    if (ids.length > 0) options.onError(new WaybillError('NOT_FOUND', goneText(options, ids)))
    return ids.length
  }

  /** Something was settled: there may be room again, a lane may be free to go, and messages come back now or later. */
  #settled(backAfterMs: readonly number[]): void {
    for (const delayMs of backAfterMs) void this.#comeBack(delayMs)
    if (this.#full) this.#deps.waker.wake()
    if (this.#lanes.leaving((lane) => this.#inHand.uses(lane)).length > 0) this.#leaseWaker.wake()
  }

  async #comeBack(delayMs: number): Promise<void> {
    const { clock, waker } = this.#deps
    if (delayMs > 0) await clock.sleep(delayMs, this.#fetching.signal)
    this.#lanes.forgetFloors(clock.monotonicMs())
    waker.wake()
  }
}

/** The lanes of a fetch, as they were held when it began. */
type AskedLanes = ReadonlyMap<number, HeldLane>

type MessageRow = {
  readonly [Key in keyof FetchedRow]: Key extends 'key' | 'ordering_key' | 'floor' | 'rests'
    ? FetchedRow[Key]
    : NonNullable<FetchedRow[Key]>
}

function isMessage(row: FetchedRow): row is MessageRow {
  return row.seq !== null && row.body !== null
}

function goneText({ topic, consumer }: ReceiveOptions, ids: readonly string[]): string {
  const some = ids.slice(0, 5).join(', ')
  return `postgres: ${ids.length} messages of ${topic} are gone before ${consumer} has settled them; it goes on without them: ${some}${ids.length > 5 ? ' …' : ''}`
}

function compareSeqs(a: string, b: string): number {
  return a.length - b.length || (a < b ? -1 : 1)
}

/**
 * Tells now and then how many messages a subscription has not settled, as it is told of other brokers.
 *
 * Any number of receivers share a subscription, and each could count all of it: whoever holds its first lane does. A count that fails is
 * left out; what is wrong with the database is told by the fetches.
 */
interface LagReport {
  readonly db: Queryable
  readonly tables: TransportTables
  readonly subscription: number
  readonly options: Pick<ReceiveOptions, 'topic' | 'consumer'>
  readonly lagMs: number
  readonly signals: SignalBus
  readonly clock: Clock
  /** Whether it is for this receiver to count. */
  readonly isOurs: () => boolean
}

/** Counts are exact up to here, and more is told as this many. The alert of deploy/prometheus fires at half of it. */
const lagBound = 200_000

/** Reports until `ended`. */
async function reportLag(
  { db, tables, subscription, options, lagMs, signals, clock, isOurs }: LagReport,
  ended: AbortSignal,
): Promise<void> {
  const { topic, consumer } = options
  for (;;) {
    await clock.sleep(lagMs, ended)
    if (ended.aborted) return
    if (!isOurs()) continue
    const counted = await one(db, countUnsettled(tables, subscription, lagBound)).catch(() => undefined)
    if (counted === undefined) continue
    signals.emit('transport.lag', { transport: 'postgres', topic, consumer, partition: 'all', messages: counted.messages })
  }
}
