/**
 * Stored mode: messages are stored as they come, and lanes of them are leased to processors.
 */
import type { Scope } from '../../../src/consumer/tables/inbox.sql.ts'
import {
  fenceLanes,
  giveLanes,
  lockLane,
  makeLanes,
  readReceived,
  removeReceived,
  renewLanes,
  restReceived,
  setAside,
  storeReceived,
  takeLanes,
} from '../../../src/consumer/tables/stored.sql.ts'
import type { SqlValue } from '../../../src/postgres/query/sql.ts'
import type { FakeStore } from './fake-store.ts'
import type { InboxLane, InboxStore, StoredMessage } from './inbox-tables.ts'
import { byLane, freeLane } from './lane-statements.ts'
import { numbers } from './sql-text.ts'
import type { Seen, StatementContext } from './statement-context.ts'
import { count, messagesOf, mineOf, numbered, toStoredRow } from './waiting-statements.ts'

const lease = { token: '', leaseMs: 0, lanes: [] }

export function defineStoring(store: FakeStore, scope: Scope, data: InboxStore): void {
  store.define('makeLanes', makeLanes(scope), async (context) => {
    for (let lane = 0; lane < 64; lane += 1)
      await context.insert(
        data.lane,
        { consumer: scope.consumer, lane, token: null, lockedBy: null, lockedAt: null, expiresAt: null },
        'nothing',
      )
    return []
  })
  store.define('storeReceived', storeReceived(scope, []), async (context, values) => {
    const messages = messagesOf(scope, { values: values.slice(3), state: 0, now: context.now() })
    for (const message of messages) await context.insert(data.message, numbered(data, message), 'nothing')
    return []
  })
  store.define('takeLanes', takeLanes(scope, { ...lease, worker: '', count: 0, from: 0 }), (context, values) =>
    take(context, { scope, data, values }),
  )
  store.define('fenceLanes', fenceLanes(scope, lease), async (context, [, lanes, token]) => {
    const isHeld = heldBy(scope, lanes, token)
    const held = data.broken.has('a lane is fenced')
      ? byLane(context.see(data.lane, ({ lane }) => numbers(lanes).includes(lane)))
      : await context.lockAll(byLane(context.see(data.lane, isHeld)), { still: isHeld, mode: 'key share' })
    return held.map(({ row }) => ({ lane: row.lane }))
  })
  store.define('renewLanes', renewLanes(scope, lease), async (context, [, lanes, token, leaseMs]) => {
    const isHeld = heldBy(scope, lanes, token)
    const held = await context.lockAll(byLane(context.see(data.lane, isHeld)), { still: isHeld, mode: 'no key update' })
    const set = (row: InboxLane): InboxLane => ({ ...row, lockedAt: context.now(), expiresAt: context.now() + Number(leaseMs) })
    await context.updateAll(data.lane, held, { set })
    return []
  })
  store.define('giveLanes', giveLanes(scope, lease), async (context, [, lanes, token]) => {
    const isHeld = heldBy(scope, lanes, token)
    const set = (row: InboxLane): InboxLane => ({ ...row, token: null, lockedBy: null, lockedAt: null, expiresAt: null })
    await context.updateAll(data.lane, context.see(data.lane, isHeld), { set, still: isHeld })
    return []
  })
  store.define('lockLane', lockLane(scope, 0), async (context, [, lane]) => {
    const isIt = (row: InboxLane): boolean => row.consumer === scope.consumer && row.lane === Number(lane)
    const locked = await context.lockAll(context.see(data.lane, isIt), { still: isIt })
    return locked.map(({ row }) => ({ lane: row.lane }))
  })
  store.define('readReceived', readReceived(scope, { ...lease, batchSize: 0, batchBytes: 0 }), (context, values) =>
    readDue(context, { scope, data, values }),
  )
}

export function defineStored(store: FakeStore, scope: Scope, data: InboxStore): void {
  const isMine = mineOf(scope)
  const isOpen = (row: StoredMessage): boolean => isMine(row) && row.state <= 2
  const at = (lanes: SqlValue | undefined, seqs: SqlValue | undefined): ((row: StoredMessage) => boolean) => {
    const places = new Set(numbers(lanes).map((lane, i) => `${lane} ${numbers(seqs)[i]}`))
    return (row) => isOpen(row) && places.has(`${row.lane} ${row.seq}`)
  }
  /** Where these leave a line without a head, the next of it becomes it. */
  const promote = async (
    context: StatementContext,
    leaving: readonly StoredMessage[],
    { freed }: { readonly freed: readonly StoredMessage[] },
  ): Promise<void> => {
    const left = new Set(leaving.map(({ seq }) => seq))
    const held = context.see(data.message, (row) => isMine(row) && row.state === 2 && !left.has(row.seq))
    const next = new Map<string, Seen<StoredMessage>>()
    for (const seen of held.toSorted((a, b) => a.row.seq - b.row.seq))
      if (!next.has(lineOf(seen.row)) && freed.some((row) => lineOf(row) === lineOf(seen.row))) next.set(lineOf(seen.row), seen)
    const set = (row: StoredMessage): StoredMessage => ({
      ...row,
      state: 1,
      nextAttemptAt: context.now(),
      startedAt: context.now(),
    })
    await context.updateAll(data.message, [...next.values()], { set })
  }
  const isHead = (row: StoredMessage): boolean => isMine(row) && (row.state === 1 || row.state === 3)

  store.define('removeReceived', removeReceived(scope, []), async (context, [, , lanes, seqs]) => {
    const gone = await context.remove(data.message, context.see(data.message, at(lanes, seqs)))
    await promote(context, gone, { freed: gone.filter(({ state }) => state === 1) })
    return []
  })
  store.define('setAside', setAside(scope, []), async (context, [, , lanes, seqs]) => {
    const set = (row: StoredMessage): StoredMessage => ({ ...row, state: 4, nextAttemptAt: null })
    const aside = await context.updateAll(data.message, context.see(data.message, at(lanes, seqs)), { set })
    const heads = context.rows(data.message, (row) => isHead(row) && !aside.some(({ seq }) => seq === row.seq))
    await promote(context, aside, { freed: aside.filter((row) => !heads.some((head) => lineOf(head) === lineOf(row))) })
    await count(context, data, { scope, messages: aside, sign: 1 })
    return []
  })
  store.define(
    'restReceived',
    restReceived(scope, { lane: 0, seq: '', state: 0 }, { delayMs: 0, error: '' }),
    async (context, values) => {
      const [, , lane, seq, , delayMs] = values
      const isIt = (row: StoredMessage): boolean => isOpen(row) && row.lane === Number(lane) && row.seq === Number(seq)
      const [it] = context.rows(data.message, (row) => isIt(row) && row.state !== 1)
      const others = context.see(
        data.message,
        (row) => it !== undefined && isHead(row) && lineOf(row) === lineOf(it) && row.seq !== it.seq,
      )
      const now = context.now()
      const giving = others.filter(({ row }) => row.state === 1 && row.attempts === 0 && (row.nextAttemptAt ?? Infinity) <= now)
      const behind = await context.updateAll(data.message, giving, { set: (row) => ({ ...row, state: 2 }) })
      const set = (row: StoredMessage): StoredMessage => ({
        ...row,
        attempts: row.attempts + 1,
        nextAttemptAt: context.now() + Number(delayMs),
        startedAt: context.now(),
        state: others.length === behind.length ? 1 : row.state,
      })
      await context.updateAll(data.message, context.see(data.message, isIt), { set })
      return []
    },
  )
}

function lineOf({ lane, key }: StoredMessage): string {
  return `${lane} ${key}`
}

interface Asked {
  readonly scope: Scope
  readonly data: InboxStore
  readonly values: readonly SqlValue[]
}

async function take(context: StatementContext, { scope, data, values }: Asked): Promise<object[]> {
  const [, , , , , from, , , limit, token, , leaseMs] = values
  const isMine = mineOf(scope)
  const now = context.now()
  const work = new Set(
    context
      .rows(
        data.message,
        (row) => isMine(row) && (row.state === 0 || (row.state === 1 && (row.nextAttemptAt ?? Infinity) <= now)),
      )
      .map(({ lane }) => lane),
  )
  const isNobodys = freeLane(context)
  const isFree = (row: InboxLane): boolean => row.consumer === scope.consumer && work.has(row.lane) && isNobodys(row)
  const place = ({ lane }: InboxLane): number => (lane - Number(from) + 64) % 64
  const taken: Seen<InboxLane>[] = []
  for (const seen of context.see(data.lane, isFree).toSorted((a, b) => place(a.row) - place(b.row))) {
    if (taken.length >= Number(limit)) break
    const row = await context.lock(seen, { still: isFree, skipLocked: true })
    if (row !== undefined) taken.push({ tuple: seen.tuple, row })
  }
  const set = (row: InboxLane): InboxLane => ({
    ...row,
    token: String(token),
    lockedBy: context.tx.startedBy,
    lockedAt: context.now(),
    expiresAt: context.now() + Number(leaseMs),
  })
  return (await context.updateAll(data.lane, taken, { set })).map(({ lane }) => ({ lane }))
}

async function readDue(context: StatementContext, { scope, data, values }: Asked): Promise<object[]> {
  const [, lanes, token] = values
  const [perLane, batchSize, batchBytes] = [Number(values[8]), Number(values[15]), Number(values[16])]
  const isMine = mineOf(scope)
  const isHeld = heldBy(scope, lanes, token)
  const mine = await context.lockAll(byLane(context.see(data.lane, isHeld)), { still: isHeld, mode: 'share' })
  const all = context.see(data.message, isMine).toSorted((a, b) => a.row.seq - b.row.seq)
  const heads = new Set(all.filter(({ row }) => row.state === 1 || row.state === 3).map(({ row }) => lineOf(row)))
  const now = context.now()
  const chosen: StoredMessage[] = []
  for (const { row: lane } of mine) {
    const here = all.filter(({ row }) => row.lane === lane.lane)
    const due = here.filter(({ row }) => row.state === 0).slice(0, perLane)
    const blocked = due.filter(({ row }) => heads.has(lineOf(row)))
    await context.updateAll(data.message, blocked, { set: (row) => ({ ...row, state: 2 }) })
    chosen.push(...due.filter((seen) => !blocked.includes(seen)).map(({ row }) => row))
    const isRipe = ({ state, nextAttemptAt }: StoredMessage): boolean => state === 1 && (nextAttemptAt ?? Infinity) <= now
    const messages = here.map(({ row }) => row)
    const ripe = messages.filter(isRipe).slice(0, perLane)
    chosen.push(...ripe)
    for (const head of ripe.filter(({ attempts }) => attempts === 0)) {
      const line = messages.filter((row) => row.state === 2 && lineOf(row) === lineOf(head) && row.seq > head.seq)
      chosen.push(...line.slice(0, Math.floor(perLane / ripe.length)))
    }
  }
  let before = 0
  return chosen
    .toSorted((a, b) => a.seq - b.seq)
    .slice(0, batchSize)
    .filter(({ body }) => (before += body.byteLength) - body.byteLength < batchBytes)
    .map((row) => ({
      lane: row.lane,
      state: row.state,
      ...toStoredRow(row),
      attempts: row.attempts,
      waited_ms: String(Math.round(now - row.receivedAt)),
    }))
}

function heldBy(scope: Scope, lanes: SqlValue | undefined, token: SqlValue | undefined): (row: InboxLane) => boolean {
  const asked = new Set(numbers(lanes))
  return (row) => row.consumer === scope.consumer && asked.has(row.lane) && row.token === token
}
