/**
 * The relay's three statements: read what may go out, confirm what did, settle what did not.
 */
import {
  confirmDispatch,
  pullBackRetries,
  readBodies,
  readDispatch,
  readPauses,
  settleDispatch,
  wakeTopics,
} from '../../../src/outbox/tables/dispatch.sql.ts'
import { readBacklog } from '../../../src/outbox/tables/backlog.sql.ts'
import type { OutboxTables } from '../../../src/outbox/tables/outbox.sql.ts'
import type { SqlValue } from '../../../src/postgres/query/sql.ts'
import type { FakeStore } from './fake-store.ts'
import { lockMine, patiently } from './lane-statements.ts'
import { isHead, type Dispatch, type OutboxEvent, type OutboxStore } from './outbox-tables.ts'
import { numbers, parseArray, texts } from './sql-text.ts'
import type { Seen, StatementContext } from './statement-context.ts'
import { settle } from './settle.ts'
import { bySeq, namedRows } from './named-rows.ts'

const nothing = { confirmed: [], stopped: [], hold: [] }
const keep = { receipts: true, events: true }

export function defineDispatch(store: FakeStore, tables: OutboxTables, data: OutboxStore): void {
  store.define('readDispatch', readDispatch(tables, [], { heads: 0, chain: 0, bytes: 0 }), (context, values) =>
    Promise.resolve(readDue(context, data, values)),
  )
  store.define('readBodies', readBodies(tables, []), (context, [ids]) => {
    const asked = new Set(texts(ids))
    const found = context.rows(data.outbox, ({ id }) => asked.has(id))
    return Promise.resolve(found.map(({ id, payload, headers }) => ({ event_id: id, payload, headers })))
  })
  store.define('confirmDispatch', confirmDispatch(tables, '', [], [], keep), (context, values) => confirm(context, data, values))
  store.define('settleDispatch', settleDispatch(tables, '', [], nothing, keep), async (context, values) => [
    { mine: JSON.stringify(await settle(context, data, values)) },
  ])
  store.define('readPauses', readPauses(tables), (context) =>
    Promise.resolve(context.rows(data.pause).map(({ type, id }) => ({ aggregate_type: type, aggregate_id: id }))),
  )
  store.define('readBacklog', readBacklog(tables), (context) => Promise.resolve([backlog(context.rows(data.dispatch))]))
  store.define('pullBackRetries', pullBackRetries(tables, 0), async (context, [longestMs, dated]) => {
    const latest = context.now() + Number(longestMs)
    const isBeyond = (row: Dispatch): boolean => row.state === 1 && (row.nextRetryAt ?? 0) > latest && row.lastError !== dated
    const set = (row: Dispatch): Dispatch => ({ ...row, nextRetryAt: context.now() })
    await context.updateAll(data.dispatch, context.see(data.dispatch, isBeyond), { set })
    return []
  })
  store.define('wakeTopics', wakeTopics(tables, [], 0), async (context, [longestMs, topics]) => {
    const prefixes = parseArray(topics)
    const waits = ({ state, nextRetryAt, lastError }: Dispatch): boolean =>
      state === 1 &&
      (nextRetryAt ?? 0) > context.now() &&
      (nextRetryAt ?? 0) <= context.now() + Number(longestMs) &&
      prefixes.some((prefix) => (lastError ?? '').startsWith(prefix ?? ''))
    const set = (row: Dispatch): Dispatch => ({ ...row, nextRetryAt: context.now() })
    await context.updateAll(data.dispatch, context.see(data.dispatch, waits), { set })
    return [{ more: false }]
  })
}

function readDue(context: StatementContext, data: OutboxStore, values: readonly SqlValue[]): object[] {
  const [inlineBytes, , lanes, tokens, sizes, headCount, chain] = values
  const now = context.now()
  const windows = numbers(sizes)
  const given = parseArray(tokens)
  const tokenOf = new Map(context.rows(data.lane).map(({ lane, token }) => [lane, token]))
  const heads = context.rows(data.dispatch, (row) => (data.broken.has('a parked head blocks') ? row.state === 1 : isHead(row)))
  const all = context.rows(data.dispatch).toSorted(bySeq)
  const events = new Map(context.rows(data.outbox).map((event) => [event.id, event]))
  const due: { readonly row: Dispatch; readonly blocked: boolean }[] = []
  const retried: Dispatch[] = []
  for (const [i, lane] of numbers(lanes).entries()) {
    if (given[i] === null || tokenOf.get(lane) !== given[i]) continue
    const here = all.filter((row) => row.lane === lane)
    const isBlocked = (row: Dispatch): boolean =>
      heads.some((head) => head.lane === lane && head.key === row.key && head.seq < row.seq)
    for (const row of here.filter(({ state }) => state === 0).slice(0, windows[i])) due.push({ row, blocked: isBlocked(row) })
    const ripe = here.filter((row) => row.state === 1 && (row.nextRetryAt ?? Infinity) <= now)
    retried.push(...ripe.toSorted((a, b) => (a.nextRetryAt ?? 0) - (b.nextRetryAt ?? 0)).slice(0, Number(headCount)))
  }
  const fresh = retried.filter(({ attempts }) => attempts === 0)
  const share = Math.ceil(Number(chain) / fresh.length)
  const chained = fresh.flatMap((head) =>
    all.filter((row) => row.lane === head.lane && row.key === head.key && row.state === 2).slice(0, share),
  )
  const found = [...due, ...[...retried, ...chained].map((row) => ({ row, blocked: false }))]
  found.sort((a, b) => a.row.lane - b.row.lane || bySeq(a.row, b.row))
  return found.map(({ row, blocked }) =>
    toFoundRow(row, events.get(row.eventId), { blocked, now, inlineBytes: Number(inlineBytes) }),
  )
}

function toFoundRow(
  row: Dispatch,
  event: OutboxEvent | undefined,
  at: { readonly blocked: boolean; readonly now: number; readonly inlineBytes: number },
): object {
  const { nextRetryAt, state } = row
  const bytes = event === undefined ? 0 : event.payload.byteLength + Buffer.byteLength(jsonbText(event.headers))
  const inline = bytes <= at.inlineBytes ? event : undefined
  return {
    lane: row.lane,
    seq: String(row.seq),
    key: String(row.key),
    event_id: row.eventId,
    state,
    publish_attempts: row.attempts,
    void: row.void,
    blocked: at.blocked,
    wait_ms: nextRetryAt === null || state === 1 ? 0 : Math.max(0, Math.ceil(nextRetryAt - at.now)),
    topic: event?.topic ?? null,
    aggregate_type: event?.aggregateType ?? null,
    aggregate_id: event?.aggregateId ?? null,
    version: event === undefined ? null : String(event.version),
    event_type: event?.eventType ?? null,
    schema_version: event?.schemaVersion ?? null,
    content_type: event?.contentType ?? null,
    payload: inline?.payload ?? null,
    headers: inline?.headers ?? null,
    bytes,
    occurred_at: event === undefined ? null : new Date(event.occurredAt).toISOString(),
  }
}

/** An object as jsonb writes it. */
function jsonbText(json: string): string {
  const entries = Object.entries(JSON.parse(json) as Record<string, unknown>)
  return `{${entries.map(([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`).join(', ')}}`
}

async function confirm(context: StatementContext, data: OutboxStore, values: readonly SqlValue[]): Promise<object[]> {
  const [lanes, tokens, okLanes, okSeqs, okEvents, messageIds, relay, keepReceipts, keepEvents] = values
  const fence = await patiently(context, '5000', () => lockMine(context, data, { lanes, tokens, mode: 'share' }))
  const mine = fence.map(({ row }) => row.lane)
  const named = namedRows(context, data, { lanes: okLanes, seqs: okSeqs, events: okEvents })
  const isGone = data.broken.has('what was confirmed is removed and nothing else') ? between(named) : () => true
  const chosen = data.broken.has('what was confirmed is removed and nothing else') ? context.see(data.dispatch) : named
  const gone = await context.remove(
    data.dispatch,
    chosen.filter(({ row }) => row.state === 0 && mine.includes(row.lane) && isGone(row)),
  )
  const messageOf = new Map(texts(okEvents).map((id, i) => [id, texts(messageIds)[i] ?? '']))
  for (const { eventId, attempts } of gone) {
    const receipt = { eventId, attempts: attempts + 1, relay: String(relay), messageId: messageOf.get(eventId) ?? '' }
    if (keepReceipts === true) await context.insert(data.receipt, receipt)
    if (keepEvents !== true)
      await context.remove(
        data.outbox,
        context.see(data.outbox, ({ id }) => id === eventId),
      )
  }
  return [{ mine: JSON.stringify(mine) }]
}

/** The mutant's way: everything from the first to the last. */
function between(named: readonly Seen<Dispatch>[]): (row: Dispatch) => boolean {
  const seqs = named.map(({ row }) => row.seq)
  return ({ seq }) => seq >= Math.min(...seqs) && seq <= Math.max(...seqs)
}

function backlog(rows: readonly Dispatch[]): object {
  const count = (wanted: number): number => rows.filter(({ state }) => state === wanted).length
  const parked = count(3)
  return {
    due: count(0),
    retrying: count(1),
    held: count(2),
    parked,
    oldestAgeMs: 0,
    highestAttempts: 0,
    unownedLanes: 0,
    oldestSnapshotAgeMs: 0,
  }
}
