/**
 * Leases on the outbox's lanes and the heartbeats of its relays.
 */
import {
  acquireLanes,
  awaitFirstLane,
  farewell,
  findUnlockedLanes,
  heartbeat,
  releaseLanes,
  renewLanes,
  type LaneTables,
} from '../../../src/postgres/lanes/lanes.sql.ts'
import type { SqlValue } from '../../../src/postgres/query/sql.ts'
import type { FakeStore } from './fake-store.ts'
import type { Lane, OutboxStore } from './outbox-tables.ts'
import { numbers, parseArray } from './sql-text.ts'
import type { LockOptions, Seen, StatementContext } from './statement-context.ts'

export function defineLanes(store: FakeStore, tables: LaneTables, data: OutboxStore): void {
  store.define('heartbeat', heartbeat(tables, '', 0), async (context, [worker, , , leaseMs]) => {
    const self = String(worker)
    const isFree = freeLane(context, data.broken)
    const owners = new Set(context.rows(data.lane, (row) => !isFree(row)).map(({ lockedBy }) => lockedBy))
    const isAlive = (row: { readonly worker: string; readonly seenAt: number }): boolean =>
      Math.abs(context.now() - row.seenAt) < Number(leaseMs) || owners.has(row.worker)
    const others = context.rows(data.worker, (row) => row.worker !== self && isAlive(row))
    const lanes = context.rows(data.lane).length
    const seenAt = context.now()
    await context.insert(data.worker, { worker: self, seenAt }, (row) => ({ ...row, seenAt }))
    return [{ workers: others.length + 1, rank: others.filter((row) => row.worker < self).length, lanes }]
  })

  store.define('farewell', farewell(tables, '', 0), async (context, [worker, leaseMs]) => {
    const long = context.now() - Number(leaseMs) * 20
    const isGone = (row: { readonly worker: string; readonly seenAt: number }): boolean =>
      row.worker === worker || row.seenAt < long
    await context.remove(data.worker, context.see(data.worker, isGone), isGone)
    return []
  })

  store.define('acquireLanes', acquireLanes(tables, { worker: '', token: '', leaseMs: 0, count: 0 }), async (context, values) => {
    const [count, token, worker, leaseMs] = values
    const isFree = freeLane(context, data.broken)
    const free = context.see(data.lane, isFree).toSorted((a, b) => byExpiry(a.row, b.row))
    const taken: Seen<Lane>[] = []
    for (const seen of free) {
      if (taken.length >= Number(count)) break
      const row = await context.lock(seen, { still: isFree, skipLocked: true })
      if (row !== undefined) taken.push({ tuple: seen.tuple, row })
    }
    const set = (row: Lane): Lane => ({
      ...row,
      token: String(token),
      lockedBy: String(worker),
      lockedAt: context.now(),
      expiresAt: context.now() + Number(leaseMs),
    })
    return (await context.updateAll(data.lane, taken, { set })).map(({ lane }) => ({ lane }))
  })

  store.define('renewLanes', renewLanes(tables, [], { leaseMs: 0, batch: undefined }), async (context, values) => {
    const [patience, lanes, tokens, leaseMs] = values
    const mine = await patiently(context, patience, () => lockMine(context, data, { lanes, tokens }))
    const set = (row: Lane): Lane => ({ ...row, lockedAt: context.now(), expiresAt: context.now() + Number(leaseMs) })
    return (await context.updateAll(data.lane, mine, { set })).map(({ lane }) => ({ lane }))
  })

  store.define('releaseLanes', releaseLanes(tables, [], 0), async (context, [patience, lanes, tokens]) => {
    const mine = await patiently(context, patience, () => lockMine(context, data, { lanes, tokens }))
    await context.updateAll(data.lane, mine, {
      set: ({ lane }) => ({ lane, token: null, lockedBy: null, lockedAt: null, expiresAt: null }),
    })
    return []
  })

  store.define('awaitFirstLane', awaitFirstLane(tables, [], 0), async (context, [patience, lanes, tokens]) => {
    const still = owns(lanes, tokens)
    return await patiently(context, patience, async () => {
      for (const seen of byLane(context.see(data.lane, still))) {
        const row = await context.lock(seen, { still })
        if (row !== undefined) return [{ lane: row.lane }]
      }
      return []
    })
  })

  store.define('findUnlockedLanes', findUnlockedLanes(tables, []), async (context, [lanes]) => {
    const asked = new Set(numbers(lanes))
    const found = await context.lockAll(byLane(context.see(data.lane, (row) => asked.has(row.lane))), {
      still: () => true,
      skipLocked: true,
    })
    return found.map(({ row }) => ({ lane: row.lane }))
  })
}

/** Which lanes are nobody's: given back, over, or leased further ahead than the lease lasts. */
export function freeLane(
  context: StatementContext,
  broken: ReadonlySet<string> = new Set(),
): (row: Pick<Lane, 'token' | 'lockedAt' | 'expiresAt'>) => boolean {
  return ({ token, lockedAt, expiresAt }) => {
    if (token === null || lockedAt === null || expiresAt === null || expiresAt <= context.now()) return true
    return lockedAt - context.now() > expiresAt - lockedAt && !broken.has('a lease from the future has ended')
  }
}

/** The lanes that are the caller's, locked in order; a token that is null is anybody's. */
export async function lockMine(
  context: StatementContext,
  data: Pick<OutboxStore, 'lane' | 'broken'>,
  {
    lanes,
    tokens,
    mode,
  }: { readonly lanes: SqlValue | undefined; readonly tokens: SqlValue | undefined } & Pick<LockOptions<Lane>, 'mode'>,
): Promise<Seen<Lane>[]> {
  const isMine = owns(lanes, tokens)
  if (mode === 'share' && data.broken.has('the fence locks')) return byLane(context.see(data.lane, isMine))
  const options = mode === undefined ? {} : { mode }
  return await context.lockAll(byLane(context.see(data.lane, isMine)), { still: isMine, ...options })
}

function owns(lanes: SqlValue | undefined, tokens: SqlValue | undefined): (row: Lane) => boolean {
  const tokenOf = new Map(numbers(lanes).map((lane, i) => [lane, parseArray(tokens)[i]]))
  return (row) => {
    const token = tokenOf.get(row.lane)
    return token !== undefined && (token === null || token === row.token)
  }
}

/** The wait for a row is bounded for as long as the statement takes. */
export async function patiently<Result>(
  { tx }: StatementContext,
  patience: SqlValue | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  const before = tx.lockTimeoutMs
  tx.lockTimeoutMs = Number.parseInt(String(patience), 10)
  try {
    return await work()
  } finally {
    tx.lockTimeoutMs = before
  }
}

export function byLane<R extends { readonly lane: number }>(seen: readonly Seen<R>[]): Seen<R>[] {
  return seen.toSorted((a, b) => a.row.lane - b.row.lane)
}

function byExpiry(a: Lane, b: Lane): number {
  return (a.expiresAt ?? -Infinity) === (b.expiresAt ?? -Infinity)
    ? a.lane - b.lane
    : (a.expiresAt ?? -Infinity) - (b.expiresAt ?? -Infinity)
}
