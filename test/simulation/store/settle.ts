/**
 * `outbox_settle`: the lanes are locked first, and each step after that looks with a snapshot that is younger than the lock.
 */
import { pausedError } from '../../../src/outbox/tables/pause.sql.ts'
import { datedError } from '../../../src/outbox/tables/dispatch.sql.ts'
import type { SqlValue } from '../../../src/postgres/query/sql.ts'
import { DatabaseFailure } from './database-failure.ts'
import { bySeq, namedRows, type NamedRows } from './named-rows.ts'
import { lockMine, patiently } from './lane-statements.ts'
import { isHead, type Dispatch, type OutboxStore } from './outbox-tables.ts'
import { booleans, numbers, parseArray, texts } from './sql-text.ts'
import type { Seen, StatementContext } from './statement-context.ts'

type Key = Pick<Dispatch, 'lane' | 'key'>

export async function settle(context: StatementContext, data: OutboxStore, values: readonly SqlValue[]): Promise<number[]> {
  if (context.tx.isolation !== 'read committed')
    throw new DatabaseFailure(
      '25001',
      'outbox_settle needs READ COMMITTED: it must see what committed while it waited for its lanes.',
    )
  const [relay, lanes, tokens, okLane, okSeq, okEvent, okMessage, ...rest] = values
  const [
    badLane,
    badSeq,
    badEvent,
    badPark,
    badVoid,
    badCharge,
    badDelay,
    badError,
    holdLane,
    holdDepth,
    keepReceipts,
    keepEvents,
  ] = rest
  const locked = await patiently(context, '5000', () => lockMine(context, data, { lanes, tokens }))
  const mine = locked.map(({ row }) => row.lane)
  const ours = ({ row }: Seen<Dispatch>): boolean => mine.includes(row.lane)

  await context.next()
  const gone = await context.remove(
    data.dispatch,
    namedRows(context, data, { lanes: okLane, seqs: okSeq, events: okEvent }).filter(ours),
  )
  const messageOf = new Map(texts(okEvent).map((id, i) => [id, parseArray(okMessage)[i] ?? null]))
  for (const { eventId, attempts } of gone) {
    const messageId = messageOf.get(eventId) ?? null
    if (keepReceipts === true && messageId !== null)
      await context.insert(data.receipt, { eventId, attempts: attempts + 1, relay: String(relay), messageId })
  }
  if (keepEvents !== true && gone.length > 0) {
    await context.next()
    const forgotten = new Set(gone.map(({ eventId }) => eventId))
    await context.remove(
      data.outbox,
      context.see(data.outbox, ({ id }) => forgotten.has(id)),
    )
  }
  if (numbers(badLane).length > 0) {
    const bad = { lanes: badLane, seqs: badSeq, events: badEvent }
    await demoteHeadsBehind(context, data, { bad, mine })
    const [events, parks, voids, charges, delays] = [
      texts(badEvent),
      booleans(badPark),
      booleans(badVoid),
      numbers(badCharge),
      numbers(badDelay),
    ]
    const stops = new Map(
      events.map((id, i) => [
        id,
        {
          park: parks[i] ?? false,
          void: voids[i] ?? false,
          charge: charges[i] ?? 0,
          delayMs: delays[i] ?? 0,
          error: texts(badError)[i] ?? '',
        },
      ]),
    )
    await makeHeads(context, data, { bad, mine, stops })
  }
  await promote(context, data, data.broken.has('a head that goes is followed') ? [] : freedKeys(gone))
  await hold(context, data, { lanes: numbers(holdLane), depths: numbers(holdDepth), mine })
  return mine
}

interface Bad {
  readonly bad: NamedRows
  readonly mine: readonly number[]
}

/** A head that stands behind the one that failed now is not the first of its key any more. */
async function demoteHeadsBehind(context: StatementContext, data: OutboxStore, { bad, mine }: Bad): Promise<void> {
  await context.next()
  const failed = namedRows(context, data, bad).filter(({ row }) => row.state !== 3 && mine.includes(row.lane))
  const behind = context.see(
    data.dispatch,
    (head) => isHead(head) && failed.some(({ row }) => row.lane === head.lane && row.key === head.key && head.seq > row.seq),
  )
  await context.updateAll(data.dispatch, behind, { set: (row) => ({ ...row, state: 2 }) })
}

interface Stop {
  readonly park: boolean
  readonly void: boolean
  readonly charge: number
  readonly delayMs: number
  readonly error: string
}

/** The row that failed becomes the head that blocks its key, unless one stands before it. */
async function makeHeads(
  context: StatementContext,
  data: OutboxStore,
  { bad, mine, stops }: Bad & { readonly stops: ReadonlyMap<string, Stop> },
): Promise<void> {
  await context.next()
  const isBehind = (row: Dispatch): boolean =>
    context
      .rows(data.dispatch)
      .some((head) => isHead(head) && head.lane === row.lane && head.key === row.key && head.seq < row.seq)
  const failed = namedRows(context, data, bad).filter(({ row }) => row.state !== 3 && mine.includes(row.lane) && !isBehind(row))
  const paused = context.rows(data.pause)
  const typeOf = new Map(context.rows(data.outbox).map((event) => [event.id, event]))
  const set = (row: Dispatch): Dispatch => {
    const stop = stops.get(row.eventId) as Stop
    const event = typeOf.get(row.eventId)
    const isPaused = paused.some(({ type, id }) => type === event?.aggregateType && (id === '' || id === event?.aggregateId))
    const delayMs = stop.error === pausedError && !isPaused ? 100 : stop.delayMs
    return {
      ...row,
      state: stop.park ? 3 : 1,
      attempts: row.attempts + stop.charge,
      void: row.void || stop.void,
      nextRetryAt: context.now() + delayMs,
      parkedAt: stop.park ? context.now() : null,
      lastError: stop.error,
    }
  }
  await context.updateAll(data.dispatch, failed, { set })
}

/** A key that lost its head gets the next: its lowest held row. */
async function promote(context: StatementContext, data: OutboxStore, freed: readonly Key[]): Promise<void> {
  await context.next()
  const all = context.see(data.dispatch)
  const next = freed.flatMap(({ lane, key }) => {
    const same = all.filter(({ row }) => row.lane === lane && row.key === key)
    if (same.some(({ row }) => isHead(row))) return []
    return same
      .filter(({ row }) => row.state === 2)
      .toSorted((a, b) => bySeq(a.row, b.row))
      .slice(0, 1)
  })
  const set = (row: Dispatch): Dispatch => {
    const now = context.now()
    const isDated = (row.nextRetryAt ?? 0) > now
    return {
      ...row,
      state: 1,
      nextRetryAt: Math.max(row.nextRetryAt ?? now, now),
      lastError: isDated ? datedError : row.lastError,
    }
  }
  await context.updateAll(data.dispatch, next, { set })
}

/** Rows behind a head leave the due range: those among the first of the lane. */
async function hold(
  context: StatementContext,
  data: OutboxStore,
  asked: { readonly lanes: readonly number[]; readonly depths: readonly number[]; readonly mine: readonly number[] },
): Promise<void> {
  await context.next()
  const all = context.see(data.dispatch).toSorted((a, b) => bySeq(a.row, b.row))
  for (const [i, lane] of asked.lanes.entries()) {
    if (!asked.mine.includes(lane)) continue
    const here = all.filter(({ row }) => row.lane === lane)
    const isBlocked = (row: Dispatch): boolean =>
      here.some(({ row: head }) => isHead(head) && head.key === row.key && head.seq < row.seq)
    const due = here.filter(({ row }) => row.state === 0).slice(0, asked.depths[i])
    await context.updateAll(
      data.dispatch,
      due.filter(({ row }) => isBlocked(row)),
      { set: (row) => ({ ...row, state: 2 }) },
    )
  }
}

function freedKeys(gone: readonly Dispatch[]): Key[] {
  const freed = new Map<string, Key>()
  for (const { lane, key, state } of gone) if (state !== 0) freed.set(`${lane} ${key}`, { lane, key })
  return [...freed.values()]
}
