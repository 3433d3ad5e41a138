/**
 * An outbox, a broker and relays by hand, for scenarios in which every step happens when the test says so.
 */
import type { Database, Tx } from '../../src/postgres/query/database.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { settleDispatch, type Settlement } from '../../src/outbox/tables/dispatch.sql.ts'
import { one } from '../../src/postgres/query/database.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { checkHistory } from '../../src/testing/history/checker.ts'
import { createHistory } from '../../src/testing/history/history.ts'
import { logEntry } from '../../src/testing/history/message-entries.ts'
import { recordHistory } from '../../src/testing/history/read-history.ts'
import { memory, type MemoryTransport } from '../../src/transport/memory/memory.ts'
import type { Publisher } from '../../src/transport/port/transport.ts'
import { outboxFixture, type OutboxFixture } from '../setup/outbox-fixture.ts'
import type { Mutant } from './mutants/mutant.ts'
import { relayByHand, useOneLane, type ByHandOptions, type RelayByHand } from './relay-by-hand.ts'

export interface World extends Omit<OutboxFixture, 'relay'> {
  readonly broker: MemoryTransport
  /** A relay that publishes to the broker, or to what is given; the mutant's changes apply. */
  relay(options?: ByHandOptions & { readonly publisher?: Publisher }): RelayByHand
  /** Refuses these messages (`'a 1'`) from now on, and only these. */
  refuse(...names: readonly string[]): void
  /** What the history violates. */
  found(dropped?: ReadonlySet<string>): Promise<string[]>
  /** The dispatch row of `'a 1'`, as an operator names it. */
  row(name: string): Promise<{ lane: number; seq: string; eventId: string }>
}

/** A fixture with one lane, in which the mutant has taken the place of what it breaks. */
export async function openWorld(db: Database, mutant: Mutant = {}): Promise<World> {
  const fixture = await outboxFixture(db)
  await useOneLane(fixture)
  await mutant.prepare?.(fixture)
  const broker = memory()
  const { tables } = fixture.outbox
  return {
    ...fixture,
    broker,
    relay: ({ publisher = broker, steps, ...options } = {}) =>
      relayByHand(fixture, mutant.publisher?.(publisher) ?? publisher, { ...options, steps: { ...mutant.steps, ...steps } }),
    refuse: (...names) =>
      broker.setRejects(({ attributes: { aggregate_id: id, version } }) => names.includes(`${id} ${version}`)),
    found: async (dropped = new Set()) => {
      const history = createHistory()
      for (const message of broker.published) history.record(logEntry(message))
      for (const event of dropped) history.record({ op: 'excuse', event, why: 'an operator dropped it' })
      await recordHistory(history, { owner: { db, schema: tables.schema, log: 'recorded' } })
      return checkHistory(history.entries).violations.map(({ text }) => text)
    },
    row: async (name) => {
      const [id, version] = name.split(' ')
      const { rows } = await db.query(
        `select d.lane, d.seq::text, d.event_id::text as "eventId" from ${tables.dispatch.quoted} d join ${tables.outbox.quoted} o on o.id = d.event_id
          where o.aggregate_id = $1 and o.version = $2::text::bigint`,
        [id ?? '', version ?? ''],
      )
      return rows[0] as { lane: number; seq: string; eventId: string }
    },
  }
}

/** A gate that stays shut until it is opened. */
export interface Gate {
  readonly passed: Promise<void>
  open(): void
}

export function gate(): Gate {
  const { promise, resolve } = Promise.withResolvers<void>()
  return { passed: promise, open: resolve }
}

/** A transaction that has done its work and waits to be told to commit. */
export async function opened<Result>(
  db: Database,
  work: (tx: Tx) => Promise<Result>,
): Promise<{ readonly value: Result; commit(): Promise<void> }> {
  const shut = gate()
  const started = Promise.withResolvers<Result>()
  const ended = transaction(db, async (tx) => {
    started.resolve(await work(tx))
    await shut.passed
  })
  ended.catch((error: unknown) => started.reject(error as Error))
  const value = await started.promise
  const commit = async (): Promise<void> => {
    shut.open()
    await ended
  }
  return { value, commit }
}

/** Waits until the promise has settled or some session of this database waits for a lock: then it has got as far as it can. */
export async function untilBlocked(db: Database, promise: Promise<unknown>): Promise<void> {
  let settled = false
  const note = (): void => void (settled = true)
  promise.then(note, note)
  await eventually(async () => {
    if (settled) return true
    const { rows } = await db.query(
      `select count(*)::int as waiting from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    )
    return (rows[0] as { waiting: number }).waiting > 0
  })
}

/** What an operator does: serialised by the lane's row, whoever holds its lease. */
export async function operate(
  db: Pick<Database, 'query'>,
  { outbox }: Pick<OutboxFixture, 'outbox'>,
  settlement: Partial<Settlement>,
): Promise<void> {
  const full: Settlement = { confirmed: [], stopped: [], hold: [], ...settlement }
  const lanes = [...new Set([...full.confirmed, ...full.stopped].map(({ lane }) => lane))].map((lane) => ({ lane, token: null }))
  await one(db, settleDispatch(outbox.tables, 'operator', lanes, full, { receipts: true, events: true }))
}
