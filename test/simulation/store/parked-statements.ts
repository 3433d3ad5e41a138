/**
 * What operators do with parked heads, and the audit log.
 */
import { lockLanes, reviveParked, selectParked, selectQuiet } from '../../../src/outbox/tables/parked.sql.ts'
import type { OutboxTables } from '../../../src/outbox/tables/outbox.sql.ts'
import { insertAudit } from '../../../src/postgres/schema/migrate.sql.ts'
import { bySeq, namedRows } from './named-rows.ts'
import type { FakeStore } from './fake-store.ts'
import { byLane } from './lane-statements.ts'
import type { Dispatch, OutboxStore } from './outbox-tables.ts'
import { numbers } from './sql-text.ts'

export function defineParked(store: FakeStore, tables: OutboxTables, data: OutboxStore): void {
  store.define('selectParked', selectParked(tables, {}, { limit: 0 }), async (context, values) => {
    const [afterLane, afterSeq] = [Number(values[0]), Number(values[1])]
    const all = context.rows(data.dispatch)
    const events = new Map(context.rows(data.outbox).map((event) => [event.id, event]))
    const parked = all.filter(
      (row) => row.state === 3 && (row.lane > afterLane || (row.lane === afterLane && row.seq > afterSeq)),
    )
    return parked
      .toSorted((a, b) => a.lane - b.lane || bySeq(a, b))
      .map((row) => ({
        lane: row.lane,
        seq: String(row.seq),
        event_id: row.eventId,
        publish_attempts: row.attempts,
        void: row.void,
        last_error: row.lastError,
        parked_at: new Date(row.parkedAt ?? 0).toISOString(),
        held: all.filter((other) => other.lane === row.lane && other.key === row.key && other.state === 2).length,
        aggregate_type: events.get(row.eventId)?.aggregateType ?? null,
        aggregate_id: events.get(row.eventId)?.aggregateId ?? null,
        version: String(events.get(row.eventId)?.version),
        event_type: events.get(row.eventId)?.eventType ?? null,
        topic: events.get(row.eventId)?.topic ?? null,
        occurred_at: null,
      }))
      .slice(0, Number(values.at(-1)))
  })

  store.define('lockLanes', lockLanes(tables, []), async (context, [lanes]) => {
    const asked = new Set(numbers(lanes))
    const locked = await context.lockAll(byLane(context.see(data.lane, ({ lane }) => asked.has(lane))), { still: () => true })
    return locked.map(() => ({}))
  })

  store.define('reviveParked', reviveParked(tables, [], { asVoid: false }), async (context, [asVoid, lanes, seqs, events]) => {
    const isParked = ({ state }: Dispatch): boolean => state === 3
    const heads = namedRows(context, data, { lanes, seqs, events }).filter(({ row }) => isParked(row))
    const set = (row: Dispatch): Dispatch => ({
      ...row,
      state: 1,
      attempts: 0,
      nextRetryAt: context.now(),
      parkedAt: null,
      void: asVoid === true,
    })
    const revived = await context.updateAll(data.dispatch, heads, { set, still: isParked })
    return revived.map(({ eventId }) => ({ event_id: eventId }))
  })

  store.define('selectQuiet', selectQuiet(tables, [], 0), async (context, [quietMs, lanes, seqs, events]) =>
    namedRows(context, data, { lanes, seqs, events })
      .filter(({ row }) => row.state === 3)
      .map(({ row }) => ({ event_id: row.eventId, quiet: (row.parkedAt ?? 0) < context.now() - Number(quietMs) })),
  )

  store.define('insertAudit', insertAudit(tables.schema, { actor: '', action: '', details: {} }), async (context, values) => {
    await context.insert(data.audit, { action: String(values[1]), details: String(values.at(-1)) })
    return [{ id: String(data.audit.nextIdentity()) }]
  })
}
