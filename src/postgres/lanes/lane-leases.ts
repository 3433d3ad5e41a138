/**
 * One worker's leases on lanes: fair shares, renewal, and the knowledge of when to stop.
 *
 * Every acquisition has a fresh token, and every later write is fenced by it; so a worker that lost a lane without
 * noticing changes nothing. Shares follow from the heartbeats of all workers: floor(lanes / workers), and the remainder to
 * the first in rank. `mayWork` is a local, monotonic guess that errs on the safe side: the lease as of when we asked,
 * and without a lane none. Renewals keep the heartbeat fresh as well: neither a long batch nor a long wait looks like death
 * to the others.
 * A lane whose row somebody keeps locked is given up after half a lease, so that it stalls alone.
 */
import { randomUUID } from 'node:crypto'
import type { Clock } from '../../core/service/clock.ts'
import type { SignalBus } from '../../core/signals.ts'
import { execute, one, rows, type Queryable } from '../query/database.ts'
import {
  acquireLanes,
  awaitFirstLane,
  farewell,
  findUnlockedLanes,
  heartbeat,
  releaseLanes,
  renewLanes,
  type HeldLane,
  type LaneTables,
} from './lanes.sql.ts'
import { isLockTimeout } from '../query/sql-state.ts'

export interface LaneLeaseOptions {
  readonly db: Queryable
  readonly tables: LaneTables
  /** Unique among the workers that live at the same time. */
  readonly worker: string
  readonly leaseMs: number
  readonly renewMs: number
  readonly clock: Clock
  readonly signals: SignalBus
}

export interface LaneLeases {
  /** The lanes that are ours, as far as we know. */
  held(): readonly HeldLane[]
  /** How many lanes there are, ours and others'. */
  lanes(): number
  /** Whether we hold a lane, and our leases have surely not run out yet. */
  mayWork(): boolean
  /** Forgets lanes that turned out to be another's. One that was taken again meanwhile, under another token, stays. */
  lose(lanes: readonly HeldLane[]): void
  /** Those of these lanes whose rows nobody keeps locked. To be asked when a statement on just these lanes failed by lock_timeout. */
  unlocked(lanes: readonly HeldLane[]): Promise<readonly HeldLane[]>
  /** Whether it is time to look at the shares again. */
  isRebalanceDue(): boolean
  /** Heartbeat, fair share, take or give back. Call it only while no batch is under way. */
  rebalance(): Promise<void>
  /** Prolongs the leases, and says that we live if that was not said lately. Can be called while a batch is under way. */
  renew(batch: { readonly from: string; readonly to: string } | undefined): Promise<void>
  /** Gives every lane back. `leave` also ends the heartbeat. */
  release(options: { readonly leave: boolean }): Promise<void>
}

/** What a worker is entitled to: the remainder goes to the first in rank, so that the shares add up to all lanes. */
export function fairShare(lanes: number, workers: number, rank: number): number {
  return Math.floor(lanes / workers) + (rank < lanes % workers ? 1 : 0)
}

export function createLaneLeases(options: LaneLeaseOptions): LaneLeases {
  const { db, tables, worker, leaseMs, renewMs, clock, signals } = options
  const pulse = createPulse(options)
  const held = new Map<number, HeldLane>()
  let validUntil = 0
  let rebalanceAt = 0
  let laneCount = 0

  const lose = (lanes: readonly HeldLane[]): void => {
    const lost = lanes.filter(({ lane, token }) => held.get(lane)?.token === token && held.delete(lane))
    if (lost.length > 0) signals.emit('lanes.lost', { worker, lanes: lost.map(({ lane }) => lane) })
  }
  const renew: LaneLeases['renew'] = async (batch) => {
    if (held.size === 0) return
    const askedAt = clock.monotonicMs()
    const asked = [...held.values()]
    const kept = await prolong(options, asked, batch)
    lose(asked.filter(({ lane }) => !kept.has(lane)))
    validUntil = askedAt + leaseMs
  }
  const give = async (lanes: readonly HeldLane[]): Promise<void> => {
    if (lanes.length === 0) return
    for (const { lane } of lanes) held.delete(lane)
    await release(options, lanes)
    signals.emit('lanes.released', { worker, lanes: lanes.map(({ lane }) => lane) })
  }
  const take = async (count: number): Promise<void> => {
    const token = randomUUID()
    const taken = await rows(db, acquireLanes(tables, { worker, token, leaseMs, count }))
    for (const { lane } of taken) held.set(lane, { lane, token })
    if (taken.length > 0) signals.emit('lanes.acquired', { worker, lanes: taken.map(({ lane }) => lane) })
  }
  return {
    held: () => [...held.values()],
    lanes: () => laneCount,
    mayWork: () => held.size > 0 && clock.monotonicMs() < validUntil,
    lose,
    unlocked: (lanes) => findUnlocked(options, lanes),
    isRebalanceDue: () => clock.monotonicMs() >= rebalanceAt,
    renew: (batch) => renew(batch).then(() => pulse.keep()),
    rebalance: async () => {
      const askedAt = clock.monotonicMs()
      const { workers, rank, lanes } = await pulse.beat()
      laneCount = lanes
      // The older lanes first: in our own reckoning no lane may outlive them.
      await renew(undefined)
      if (held.size === 0) validUntil = askedAt + leaseMs
      const share = fairShare(lanes, workers, rank)
      await give([...held.values()].slice(share))
      if (held.size < share) await take(share - held.size)
      rebalanceAt = askedAt + renewMs
    },
    release: async ({ leave }) => {
      rebalanceAt = 0
      try {
        await give([...held.values()])
      } finally {
        // Lanes that could not be given back are free when their leases end: then nobody may wait for us.
        if (leave) await pulse.end()
      }
    },
  }
}

interface Pulse {
  beat(): Promise<{ readonly workers: number; readonly rank: number; readonly lanes: number }>
  /** Beats if that is due. */
  keep(): Promise<void>
  end(): Promise<void>
}

/** Our heartbeat. None is due before the first and after the end: a worker that takes no part must not count. */
function createPulse({ db, tables, worker, leaseMs, renewMs, clock }: LaneLeaseOptions): Pulse {
  let dueAt = Number.POSITIVE_INFINITY
  const beat: Pulse['beat'] = async () => {
    dueAt = clock.monotonicMs() + renewMs
    return await one(db, heartbeat(tables, worker, leaseMs))
  }
  return {
    beat,
    keep: async () => {
      if (clock.monotonicMs() >= dueAt) await beat()
    },
    end: async () => {
      dueAt = Number.POSITIVE_INFINITY
      await execute(db, farewell(tables, worker, leaseMs))
    },
  }
}

/** Prolongs leases; returns the lanes that are still ours. One whose row somebody keeps locked is not: the others matter more. */
async function prolong(
  options: LaneLeaseOptions,
  asked: readonly HeldLane[],
  batch: Parameters<LaneLeases['renew']>[0],
): Promise<ReadonlySet<number>> {
  const { db, tables, leaseMs } = options
  const renewed = async (lanes: readonly HeldLane[]): Promise<ReadonlySet<number>> =>
    new Set((await rows(db, renewLanes(tables, lanes, { leaseMs, batch }))).map(({ lane }) => lane))
  try {
    return await renewed(asked)
  } catch (error) {
    if (!isLockTimeout(error)) throw error
    return await renewed(await findUnlocked(options, asked))
  }
}

/** The server tells of an error before it rolls back: without the wait, the lanes that the failed statement got would seem another's. */
async function findUnlocked({ db, tables, leaseMs }: LaneLeaseOptions, lanes: readonly HeldLane[]): Promise<readonly HeldLane[]> {
  await unlessLocked(execute(db, awaitFirstLane(tables, lanes, leaseMs)))
  const unlocked = new Set((await rows(db, findUnlockedLanes(tables, lanes))).map(({ lane }) => lane))
  return lanes.filter(({ lane }) => unlocked.has(lane))
}

/** Gives lanes back. Where somebody keeps a row locked, the leases end by themselves. */
async function release({ db, tables, leaseMs }: LaneLeaseOptions, lanes: readonly HeldLane[]): Promise<void> {
  await unlessLocked(execute(db, releaseLanes(tables, lanes, leaseMs)))
}

async function unlessLocked(statement: Promise<unknown>): Promise<void> {
  try {
    await statement
  } catch (error) {
    if (!isLockTimeout(error)) throw error
  }
}
