/**
 * The fake store is worth as much as it behaves like PostgreSQL: the same scripts of statements, with the same transactions
 * side by side, must get the same answers and leave the same rows on both.
 */
import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { createOutbox } from '../../src/outbox/outbox.ts'
import { fromPg } from '../../src/postgres/from-pg.ts'
import { migrate } from '../../src/postgres/migrate.ts'
import { testDatabase } from '../setup/test-database.ts'
import { outboxScripts } from './outbox-script.ts'
import { atOnce, fakeSide, isUndecided, play, postgresSide } from './sides.ts'
import { defineAdding } from './store/add-statements.ts'
import { defineDispatch } from './store/dispatch-statements.ts'
import { FakeStore } from './store/fake-store.ts'
import { defineLanes } from './store/lane-statements.ts'
import { outboxStore, type Lane, type OutboxStore } from './store/outbox-tables.ts'
import { defineParked } from './store/parked-statements.ts'

const database = await testDatabase()
await migrate(fromPg(database.pool), { schema: 'waybill', service: 'test' })
await database.pool.query('select waybill.outbox_change_lanes(2)')
const { tables } = createOutbox()
const sessions = 3
const postgres = await postgresSide(database.directUrl, sessions)
afterAll(() => postgres.close())

const runs = { ci: 300, full: 3_000 }[process.env['WAYBILL_PROOF'] ?? ''] ?? 40

test('scripts of the outbox’s statements end alike on the fake store and on PostgreSQL', { timeout: 3_600_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(outboxScripts(tables, sessions), async (script) => {
      const { store, data } = createStore()
      const expected = await play(fakeSide(store, sessions), script)
      fc.pre(!isUndecided(expected))
      await reset()
      expect(await play(postgres, script)).toEqual(expected)
      expect(await postgresRows()).toEqual(fakeRows(store, data))
    }),
    { numRuns: runs, endOnFailure: true },
  )
})

function createStore(): { readonly store: FakeStore; readonly data: OutboxStore } {
  const store = new FakeStore(atOnce)
  const data = outboxStore(2)
  for (const define of [defineAdding, defineDispatch, defineLanes, defineParked]) define(store, tables, data)
  store.seed(
    data.lane,
    [0, 1].map((lane): Lane => ({ lane, token: null, lockedBy: null, expiresAt: null })),
  )
  return { store, data }
}

async function reset(): Promise<void> {
  await postgres.admin.query(`truncate waybill.aggregate_version, waybill.outbox, waybill.outbox_dispatch, waybill.outbox_relay,
    waybill.outbox_receipt, waybill.outbox_source restart identity;
    update waybill.outbox_lane set lock_token = null, locked_by = null, lock_expires_at = null`)
}

async function postgresRows(): Promise<Record<string, string[]>> {
  const { rows } = await postgres.admin.query<{ name: string; line: string }>(`
    select 'dispatch' as name, concat_ws(' ', lane, seq, key, event_id, state, publish_attempts, void, next_retry_at is null, parked_at is null, last_error) as line from waybill.outbox_dispatch
    union all select 'lane', concat_ws(' ', lane, coalesce(lock_token::text, '-'), coalesce(locked_by, '-')) from waybill.outbox_lane
    union all select 'receipt', concat_ws(' ', event_id, attempts, relay, message_id) from waybill.outbox_receipt
    union all select 'version', concat_ws(' ', aggregate_id, version) from waybill.aggregate_version
    union all select 'outbox', concat_ws(' ', id, aggregate_id, version) from waybill.outbox
    union all select 'worker', worker from waybill.outbox_relay`)
  return grouped(rows)
}

function fakeRows(store: FakeStore, data: OutboxStore): Record<string, string[]> {
  const lines = <R>(
    name: string,
    found: readonly R[],
    line: (row: R) => readonly (string | number | bigint | boolean | null)[],
  ): { name: string; line: string }[] =>
    found.map((row) => ({
      name,
      line: line(row)
        .filter((part) => part !== null)
        .map((part) => (typeof part === 'boolean' ? (part ? 't' : 'f') : String(part)))
        .join(' '),
    }))
  return grouped([
    ...lines('dispatch', store.committed(data.dispatch), (row) => [
      row.lane,
      row.seq,
      row.key,
      row.eventId,
      row.state,
      row.attempts,
      row.void,
      row.nextRetryAt === null,
      row.parkedAt === null,
      row.lastError,
    ]),
    ...lines('lane', store.committed(data.lane), (row) => [row.lane, row.token ?? '-', row.lockedBy ?? '-']),
    ...lines('receipt', store.committed(data.receipt), (row) => [row.eventId, row.attempts, row.relay, row.messageId]),
    ...lines('version', store.committed(data.version), (row) => [row.id, row.version]),
    ...lines('outbox', store.committed(data.outbox), (row) => [row.id, row.aggregateId, row.version]),
    ...lines('worker', store.committed(data.worker), (row) => [row.worker]),
  ])
}

function grouped(rows: readonly { readonly name: string; readonly line: string }[]): Record<string, string[]> {
  const groups: Record<string, string[]> = {}
  for (const { name, line } of rows) (groups[name] ??= []).push(line)
  for (const group of Object.values(groups)) group.sort()
  return groups
}
