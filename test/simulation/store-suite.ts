/**
 * The fake store is worth as much as it behaves like PostgreSQL: the same scripts of statements, with the same transactions
 * side by side, must get the same answers and leave the same rows on both.
 */
import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { commandTables } from '../../src/command/model/command.sql.ts'
import { inboxTables, type Scope } from '../../src/consumer/tables/inbox.sql.ts'
import { createOutbox } from '../../src/outbox/outbox.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { testDatabase } from '../setup/test-database.ts'
import { commandExamples, commandScripts, type PipelineTables } from './command-script.ts'
import { inboxScripts } from './inbox-script.ts'
import { leaseExamples, leaseScripts } from './lease-script.ts'
import { outboxExamples, outboxScripts, type ScriptStep } from './outbox-script.ts'
import { atOnce, fakeSide, isUndecided, play, postgresSide, type PostgresSide } from './sides.ts'
import { storedExamples } from './stored-script.ts'
import { defineAdding } from './store/add-statements.ts'
import { commandStore, defineCommands } from './store/command-statements.ts'
import { defineDispatch } from './store/dispatch-statements.ts'
import { defineEffects, effectStore, viewTable } from './store/effect-statements.ts'
import { FakeStore } from './store/fake-store.ts'
import { defineInbox } from './store/inbox-statements.ts'
import { inboxStore } from './store/inbox-tables.ts'
import { defineLanes } from './store/lane-statements.ts'
import { outboxStore } from './store/outbox-tables.ts'
import { defineParked } from './store/parked-statements.ts'
import { defineStored, defineStoring } from './store/stored-statements.ts'
import type { Table } from './store/mvcc.ts'
import { defineTransactions } from './store/transaction-statements.ts'
import { defineAttempts, defineLeases, defineWaiting } from './store/waiting-statements.ts'

const sessions = 3
const timeout = 3_600_000
const scope: Scope = { tables: inboxTables('waybill'), consumer: 'catalog', generation: 1 }

/** Scripts, and what of the fake store they are about. */
export interface Scripted {
  readonly what: string
  readonly scripts: fc.Arbitrary<readonly ScriptStep[]>
  /** Played before those that chance makes. */
  readonly examples?: readonly (readonly ScriptStep[])[]
  readonly create: () => Fake
}

const { tables } = createOutbox()
const pipeline: PipelineTables = { tables: commandTables('waybill'), outbox: tables }

export const allScripted: readonly Scripted[] = [
  {
    what: 'the outbox’s statements',
    scripts: outboxScripts(tables, sessions),
    examples: outboxExamples(tables),
    create: createOutboxFake,
  },
  {
    what: 'the consumer’s statements',
    scripts: inboxScripts(scope, sessions),
    examples: storedExamples(scope),
    create: createInboxFake,
  },
  {
    what: 'what is leased and of a view',
    scripts: leaseScripts(scope, sessions),
    examples: leaseExamples(scope),
    create: createInboxFake,
  },
  {
    what: 'the pipeline’s statements',
    scripts: commandScripts(pipeline, sessions),
    examples: commandExamples(pipeline),
    create: createCommandFake,
  },
]

/** Registers the tests; each plays `runs` scripts on both. */
export async function proveStores({ runs }: { readonly runs: number }): Promise<void> {
  const database = await testDatabase()
  await migrate(fromPg(database.pool), { schema: 'waybill', service: 'test' })
  await database.pool.query('select waybill.outbox_change_lanes(2)')
  await database.pool.query(
    `create table ${viewTable} (video_id text primary key, version bigint not null, title text, deleted_at timestamptz)`,
  )
  const postgres = await postgresSide(database.directUrl, sessions)
  afterAll(() => postgres.close())
  for (const scripted of allScripted)
    test(`scripts of ${scripted.what} end alike on the fake store and on PostgreSQL`, { timeout }, () =>
      endAlike(scripted, { postgres, runs }),
    )
}

function createOutboxFake(): Fake {
  const store = new FakeStore(atOnce)
  const data = outboxStore(2)
  for (const define of [defineAdding, defineDispatch, defineLanes, defineParked]) define(store, tables, data)
  store.seed(
    data.lane,
    [0, 1].map((lane) => ({ lane, token: null, lockedBy: null, lockedAt: null, expiresAt: null })),
  )
  return {
    store,
    rows: [
      lines(store, data.dispatch, 'dispatch', (row) => [
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
      lines(store, data.lane, 'lane', (row) => [row.lane, row.token ?? '-', row.lockedBy ?? '-']),
      lines(store, data.receipt, 'receipt', (row) => [row.eventId, row.attempts, row.relay, row.messageId]),
      lines(store, data.version, 'version', (row) => [row.id, row.version]),
      lines(store, data.outbox, 'outbox', (row) => [row.id, row.aggregateId, row.version]),
      lines(store, data.worker, 'worker', (row) => [row.worker]),
    ],
  }
}

function createInboxFake(): Fake {
  const store = new FakeStore(atOnce)
  const data = inboxStore()
  for (const define of [defineInbox, defineWaiting, defineLeases, defineAttempts, defineStoring, defineStored])
    define(store, scope, data)
  const { view, ...effects } = effectStore()
  defineEffects(store, { ...effects, view }, new Set())
  const lanes = Array.from({ length: 64 }, (_, lane) => ({
    consumer: scope.consumer,
    lane,
    token: null,
    lockedBy: null,
    lockedAt: null,
    expiresAt: null,
  }))
  store.seed(data.lane, lanes)
  return {
    store,
    rows: [
      lines(store, data.inbox, 'inbox', (row) => [row.eventId]),
      lines(store, data.position, 'position', (row) => [row.type, row.id, row.version, row.waiting, row.heldBy ?? '-']),
      lines(store, data.attempt, 'attempt', (row) => [row.eventId, row.attempts, row.unfinished]),
      lines(store, data.message, 'message', (row) => [
        row.seq,
        row.key,
        row.lane,
        row.state,
        row.eventId,
        row.version,
        row.attempts,
        row.nextAttemptAt === null,
        row.startedAt === null,
      ]),
      lines(store, data.lane, 'inbox lane', (row) => [row.lane, row.token ?? '-']),
      lines(store, view, 'view', (row) => [row.id, row.version, row.title, row.deleted]),
    ],
  }
}

function createCommandFake(): Fake {
  const store = new FakeStore(atOnce)
  const events = outboxStore(2)
  const data = { ...commandStore(), version: events.version }
  defineCommands(store, pipeline.tables, data)
  defineAdding(store, tables, events)
  defineTransactions(store)
  return {
    store,
    rows: [
      lines(store, data.version, 'version', (row) => [row.id, row.version]),
      lines(store, events.outbox, 'outbox', (row) => [row.id, row.aggregateId, row.version]),
      lines(store, data.marker, 'marker', (row) => [row.requestId, row.rejected, row.response ?? '-', row.token ?? '-']),
    ],
  }
}

export interface Fake {
  readonly store: FakeStore
  readonly rows: readonly (() => readonly Line[])[]
}

interface Line {
  readonly name: string
  readonly line: string
}

async function endAlike(
  { scripts, examples = [], create }: Scripted,
  { postgres, runs }: { readonly postgres: PostgresSide; readonly runs: number },
): Promise<void> {
  const property = fc.asyncProperty(scripts, async (script) => {
    const { store, rows } = create()
    const expected = await play(fakeSide(store, sessions), script)
    fc.pre(!isUndecided(expected))
    await reset(postgres)
    const found = await play(postgres, script)
    fc.pre(!isUndecided(found))
    expect(found).toEqual(expected)
    const fake = rows.flatMap((read) => read())
    const names = new Set(fake.map(({ name }) => name))
    expect(grouped((await postgresLines(postgres)).filter(({ name }) => names.has(name)))).toEqual(grouped(fake))
  })
  await fc.assert(property, {
    numRuns: runs + examples.length,
    examples: examples.map((script) => [script]),
    endOnFailure: true,
  })
}

async function reset({ admin, forget }: PostgresSide): Promise<void> {
  forget()
  await admin.query(`truncate waybill.aggregate_version, waybill.outbox, waybill.outbox_dispatch, waybill.outbox_relay,
    waybill.outbox_receipt, waybill.outbox_source, waybill.inbox, waybill.consumer_position, waybill.delivery_attempt, waybill.inbox_message,
    waybill.inbox_lane, waybill.command_marker, ${viewTable} restart identity;
    update waybill.outbox_lane set lock_token = null, locked_by = null, lock_expires_at = null;
    insert into waybill.inbox_lane (consumer, lane) select 'catalog', generate_series(0, 63)`)
}

/** Every table, a line a row; what a clock decides is only there or not. */
async function postgresLines({ admin }: PostgresSide): Promise<readonly Line[]> {
  const { rows } = await admin.query<Line>(`
    select 'dispatch' as name, concat_ws(' ', lane, seq, key, event_id, state, publish_attempts, void, next_retry_at is null, parked_at is null, last_error) as line from waybill.outbox_dispatch
    union all select 'lane', concat_ws(' ', lane, coalesce(lock_token::text, '-'), coalesce(locked_by, '-')) from waybill.outbox_lane
    union all select 'receipt', concat_ws(' ', event_id, attempts, relay, message_id) from waybill.outbox_receipt
    union all select 'version', concat_ws(' ', aggregate_id, version) from waybill.aggregate_version
    union all select 'outbox', concat_ws(' ', id, aggregate_id, version) from waybill.outbox
    union all select 'worker', worker from waybill.outbox_relay
    union all select 'inbox', event_id::text from waybill.inbox
    union all select 'position', concat_ws(' ', aggregate_type, aggregate_id, version, waiting, coalesce(held_by::text, '-')) from waybill.consumer_position
    union all select 'attempt', concat_ws(' ', event_id, attempts, unfinished) from waybill.delivery_attempt
    union all select 'message', concat_ws(' ', seq, key, lane, state, event_id, version, attempts, next_attempt_at is null, started_at is null) from waybill.inbox_message
    union all select 'inbox lane', concat_ws(' ', lane, coalesce(lock_token::text, '-')) from waybill.inbox_lane
    union all select 'view', concat_ws(' ', video_id, version, title, deleted_at is not null) from ${viewTable}
    union all select 'marker', concat_ws(' ', request_id, rejected, coalesce(response, '-'), coalesce(token, '-')) from waybill.command_marker`)
  return rows
}

/** The same of the fake store. */
function lines<R>(
  store: FakeStore,
  table: Table<R>,
  name: string,
  parts: (row: R) => readonly (string | number | bigint | boolean | null)[],
): () => readonly Line[] {
  const text = (part: string | number | bigint | boolean): string =>
    typeof part === 'boolean' ? (part ? 't' : 'f') : String(part)
  return () =>
    store.committed(table).map((row) => ({
      name,
      line: parts(row)
        .flatMap((part) => (part === null ? [] : [text(part)]))
        .join(' '),
    }))
}

function grouped(found: readonly Line[]): Record<string, string[]> {
  const groups: Record<string, string[]> = {}
  for (const { name, line } of found) (groups[name] ??= []).push(line)
  for (const group of Object.values(groups)) group.sort()
  return groups
}
