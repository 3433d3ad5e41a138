/**
 * What a consumer does beside deliveries: dead letters that an operator redrives, messages whose turn has come, the
 * register, the report of what waits, and rests that a clock which stepped back has put out of reach.
 *
 * Any number of instances do it at once: the letter's and the aggregate's row locks and the inbox make sure that each effect
 * happens once. Every instance sees the same letters and messages, so each takes a lease on what it works:
 *
 *   free ──take──▶ in hand ──applied, dead again or put to rest──▶ gone
 *    ▲               │
 *    └──given back───┘   or its lease is over, because the process died
 *
 * A mark of an attempt that did not finish tells of the death of a process; two instances with the same item in hand would look like that.
 * The lease is short, so that a death costs little, and is prolonged while the item is worked. A row that a transaction of ours has locked
 * needs no lease.
 */
import { defaults } from '../../core/defaults.ts'
import { execute, first, one, rows } from '../../postgres/query/database.ts'
import {
  clampLetterRetries,
  clampMessageRetries,
  leasedLetters,
  leasedWaiting,
  type TakenRow,
} from '../tables/leased-work.sql.ts'
import { countDead, markFailed, readRedriving } from '../tables/dead-letter.sql.ts'
import { fromStored, limitDecodedBytes } from '../model/decode.ts'
import { countWaiting, readConsumer, readReleased, type Scope } from '../tables/inbox.sql.ts'
import { orderKey, type UnreadItem } from '../model/batch-item.ts'
import { unknownOf, type UnknownDeps } from '../batch/put-aside.ts'
import type { Routes } from '../model/routes.ts'
import type { Statement } from '../../postgres/query/sql.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'

export interface StoredWorkDeps extends UnknownDeps {
  readonly settings: ConsumerSettings
  readonly routes: Routes
  readonly scope: Scope
  /** Returns how many of them it took up. */
  readonly work: (items: readonly UnreadItem[]) => Promise<number>
}

export interface StoredWork {
  /** One look. `found` if there was something, so that it is worth looking again at once. */
  pass(): Promise<{ readonly found: boolean; readonly paused: boolean }>
}

const reportEveryMs = 10_000
const deadBound = 10_000
const clampEveryMs = 60_000
/** Instances may be set up differently for a while; none ends a rest or a lease of another. */
const longestLeaseMs = 600_000

export function createStoredWork({ settings, routes, scope, readers, work }: StoredWorkDeps): StoredWork {
  const { db, clock, signals, gapAlertMs, deltaStart, batchBytes } = settings
  let reportAt = 0
  let reported = 0
  const report = async (paused: boolean): Promise<void> => {
    if (clock.monotonicMs() < reportAt) return
    reportAt = clock.monotonicMs() + Math.min(reportEveryMs, gapAlertMs)
    const { messages, aggregates, held, oldest_ms: oldest } = await one(db, countWaiting(scope))
    const { dead } = await one(db, countDead(scope, deadBound))
    // Told while there is something, and once more when it is gone.
    if (messages + dead === 0 && reported === 0) return
    reported = messages + dead
    // What would close a gap may be with the broker still, until an operator lets the consumer go on.
    const oldestMs = paused ? 0 : Number(oldest ?? 0)
    signals.emit('consumer.backlog', {
      consumer: scope.consumer,
      messages,
      aggregates,
      held,
      oldestMs,
      dead,
      alert: oldestMs > gapAlertMs,
    })
  }
  let clampAt = 0
  const clampRetries = async (): Promise<void> => {
    if (clock.monotonicMs() < clampAt) return
    clampAt = clock.monotonicMs() + clampEveryMs
    await execute(db, clampMessageRetries(scope))
    const longestMs = Math.max(settings.backoff.maxMs, defaults.consumer.backoff.maxMs, longestLeaseMs)
    await execute(db, clampLetterRetries(scope, longestMs * 2))
  }
  const refuse = (letterId: string): Promise<number> =>
    execute(db, markFailed(scope, letterId, `The message is no event of a stream that consumer ${scope.consumer} reads.`))
  const redrive = async (): Promise<number> => {
    const found = limitDecodedBytes(await rows(db, readRedriving(scope, settings)), batchBytes, routes)
    const letters = found.map((row) => ({ seq: row.seq, item: fromStored(row, 'dead', routes) }))
    const isUnknown = letters.some(({ item }) => item !== undefined && unknownOf(routes, item) !== undefined)
    const others = isUnknown ? await readers?.look() : undefined
    const ours: UnreadItem[] = []
    for (const { seq, item } of letters) {
      const unknown = item === undefined ? undefined : unknownOf(routes, item)
      // It is left to the instance of another version that knows it.
      if (item !== undefined && unknown !== undefined && others?.read(item.event, unknown) === true) continue
      if (item === undefined || unknown === 'stream') await refuse(seq)
      else ours.push(item)
    }
    return await work(ours)
  }
  const release = async (): Promise<number> => {
    const found = limitDecodedBytes(await rows(db, readReleased(scope, { ...routes, deltaStart }, settings)), batchBytes, routes)
    const waiting = found.map((row) => fromStored(row, 'waiting', routes))
    return await work(waiting.filter((item) => item !== undefined))
  }
  return {
    pass: async () => {
      const paused = (await first(db, readConsumer(scope)))?.paused ?? false
      await report(paused)
      if (paused) return { found: false, paused }
      await clampRetries()
      // A redriven one goes before those that wait for it.
      const worked = (await redrive()) + (await release())
      return { found: worked > 0, paused }
    },
  }
}

export interface LeasedWorkDeps {
  readonly settings: Pick<ConsumerSettings, 'db' | 'leaseMs' | 'clock'>
  readonly scope: Scope
  /** Settles every item; never rejects. */
  readonly work: (items: readonly UnreadItem[]) => Promise<void>
}

/**
 * Works those items that nobody else has in hand: letters, or waiting messages, each aggregate's in the order of versions.
 * Returns how many those were.
 */
export function createLeasedWork({ settings, scope, work }: LeasedWorkDeps): (items: readonly UnreadItem[]) => Promise<number> {
  const { db, leaseMs } = settings
  return async (items) => {
    const [first] = items
    if (first === undefined) return 0
    const { take, renew, give } = first.origin.kind === 'dead' ? leasedLetters : leasedWaiting
    const taken = await rows(db, take(scope, items, leaseMs))
    if (taken.length === 0) return 0
    const done = new AbortController()
    const kept = keep(settings, { taken, done: done.signal, renew: (held) => renew(scope, held, leaseMs) })
    const open = behindNobody(items, new Set(taken.map(({ id }) => id)))
    try {
      await work(open)
    } finally {
      done.abort()
      await execute(db, give(scope, await kept))
    }
    return open.length
  }
}

/** Prolongs the leases until the work is done; returns them as they are then. One that could not be prolonged ends by itself. */
async function keep(
  { db, leaseMs, clock }: LeasedWorkDeps['settings'],
  lease: {
    readonly taken: readonly TakenRow[]
    readonly done: AbortSignal
    readonly renew: (held: readonly TakenRow[]) => Statement<TakenRow>
  },
): Promise<readonly TakenRow[]> {
  let held = lease.taken
  for (;;) {
    await clock.sleep(leaseMs / 3, lease.done)
    if (lease.done.aborted) return held
    const renewed = await rows(db, lease.renew(held)).catch(() => [])
    const untils = new Map(renewed.map(({ id, until }) => [id, until]))
    held = held.map(({ id, until }) => ({ id, until: untils.get(id) ?? until }))
  }
}

/** What was taken, except what is in line behind one that another instance has. */
function behindNobody(items: readonly UnreadItem[], taken: ReadonlySet<string>): readonly UnreadItem[] {
  const blocked = new Set(items.filter(({ event }) => !taken.has(event.id)).map(orderKey))
  return blocked.size === 0 ? items : items.filter((item) => !blocked.has(orderKey(item)))
}
