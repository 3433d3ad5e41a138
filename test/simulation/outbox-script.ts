/**
 * Scripts of the outbox's statements, as relays, writers and operators send them, with arguments that meet each other: few
 * lanes, few tokens, few aggregates. Leases and retries are over at once or never, and a claim takes whatever lanes are free,
 * so that no clock decides.
 */
import fc from 'fast-check'
import { businessKeyId } from '../../src/core/event/id.ts'
import {
  confirmDispatch,
  pullBackRetries,
  readBodies,
  readDispatch,
  settleDispatch,
  shutError,
  wakeTopics,
} from '../../src/outbox/tables/dispatch.sql.ts'
import { addEvent, addEvents, type EncodedEvent, type OutboxTables } from '../../src/outbox/tables/outbox.sql.ts'
import { lockLanes, reviveParked, selectParked, selectQuiet } from '../../src/outbox/tables/parked.sql.ts'
import {
  acquireLanes,
  awaitFirstLane,
  farewell,
  findUnlockedLanes,
  heartbeat,
  releaseLanes,
  renewLanes,
  type HeldLane,
} from '../../src/postgres/lanes/lanes.sql.ts'
import type { Step } from './sides.ts'

export interface ScriptStep {
  readonly session: number
  readonly step: Step
}

type Read = Readonly<Record<string, unknown>>

const never = 600_000
const tokens = [1, 2].map((n) => businessKeyId('token', n))
const workers = ['relay-1', 'relay-2']
const keep = { receipts: true, events: true }

export function outboxScripts(tables: OutboxTables, sessions: number): fc.Arbitrary<readonly ScriptStep[]> {
  return scriptsOf(outboxSteps(tables), sessions)
}

/** A claim and a heartbeat by a lease that is much shorter than that of the owner, while that lasts, and when it is over. */
export function outboxExamples(tables: OutboxTables): readonly (readonly ScriptStep[])[] {
  const [long, short] = tokens as [string, string]
  const beat =
    (worker: string): Step =>
    () =>
      heartbeat(tables, worker, 0)
  const held = [0, 1].map((lane) => ({ lane, token: long }))
  const renew =
    (leaseMs: number): Step =>
    () =>
      renewLanes(tables, held, { leaseMs, batch: undefined })
  const claim =
    (worker: string, lease: { readonly token: string; readonly leaseMs: number }): Step =>
    () =>
      acquireLanes(tables, { worker, count: 2, ...lease })
  const begun = [
    [0, beat('relay-1')],
    [0, claim('relay-1', { token: long, leaseMs: never })],
    [1, beat('relay-2')],
    [1, claim('relay-2', { token: short, leaseMs: 1_000 })],
  ] as const
  const again = begun.slice(2)
  return [scriptOf(...begun), scriptOf(...begun, [0, renew(never)], ...again), scriptOf(...begun, [0, renew(0)], ...again)]
}

/** Steps of several sessions, in transactions and outside of them. */
export function scriptsOf(statements: fc.Arbitrary<Step>, sessions: number): fc.Arbitrary<readonly ScriptStep[]> {
  const session = fc.nat(sessions - 1)
  const control = fc.constantFrom<Step>('begin', 'begin', 'commit', 'commit', 'rollback')
  const step = fc.oneof({ arbitrary: control, weight: 2 }, { arbitrary: statements, weight: 5 })
  return fc.array(fc.record({ session, step }), { minLength: 6, maxLength: 40, size: 'max' })
}

/** A script by hand, for what chance seldom plays: who does what, one after the other. */
export function scriptOf(...steps: readonly (readonly [session: number, step: Step])[]): readonly ScriptStep[] {
  return steps.map(([session, step]) => ({ session, step }))
}

function outboxSteps(tables: OutboxTables): fc.Arbitrary<Step> {
  const token = fc.constantFrom(...tokens)
  const lease = fc.constantFrom(0, never)
  const held = token.map((each): HeldLane[] => [0, 1].map((lane) => ({ lane, token: each })))
  const worker = fc.constantFrom(...workers)
  const pick = fc.array(fc.boolean(), { minLength: 6, maxLength: 6 })
  const statement = fc.oneof(
    ...weighted(3, adding(tables)),
    ...weighted(
      2,
      fc.record({ worker, token, leaseMs: lease, count: fc.constant(2) }).map((claim) => () => acquireLanes(tables, claim)),
    ),
    ...weighted(
      1,
      fc.tuple(held, lease).map(
        ([lanes, leaseMs]) =>
          () =>
            renewLanes(tables, lanes, { leaseMs, batch: undefined }),
      ),
    ),
    ...weighted(
      1,
      held.map((lanes) => () => releaseLanes(tables, lanes, never)),
    ),
    ...weighted(
      1,
      held.map((lanes) => () => awaitFirstLane(tables, lanes, 0)),
    ),
    ...weighted(
      1,
      held.map((lanes) => () => findUnlockedLanes(tables, lanes)),
    ),
    ...weighted(
      1,
      fc.tuple(worker, lease).map(
        ([each, leaseMs]) =>
          () =>
            heartbeat(tables, each, leaseMs),
      ),
    ),
    ...weighted(
      1,
      worker.map((each) => () => farewell(tables, each, never)),
    ),
    ...weighted(
      4,
      fc
        .record({
          held,
          window: fc.constantFrom(1, 3, 100),
          heads: fc.constantFrom(1, 4),
          chain: fc.nat(3),
          bytes: fc.constantFrom(100, 1_000_000),
        })
        .map(
          ({ held: lanes, window, ...limits }) =>
            () =>
              readDispatch(
                tables,
                lanes.map((each) => ({ ...each, window })),
                limits,
              ),
        ),
    ),
    ...weighted(
      1,
      pick.map(
        (picked) => (read: readonly Read[]) =>
          readBodies(
            tables,
            chosen(read, picked).map((row) => identity(row).eventId),
          ),
      ),
    ),
    ...weighted(
      2,
      fc.tuple(held, pick, worker).map(
        ([lanes, picked, relay]) =>
          (read: readonly Read[]) =>
            confirmDispatch(
              tables,
              relay,
              lanes,
              chosen(read, picked).map((row) => ({ ...identity(row), messageId: 'm' })),
              keep,
            ),
      ),
    ),
    ...weighted(4, settling(tables)),
    ...weighted(
      1,
      fc.constant(() => selectParked(tables, {}, { limit: 10 })),
    ),
    ...weighted(
      1,
      fc.constant(() => lockLanes(tables, [0, 1])),
    ),
    ...weighted(
      1,
      fc.tuple(pick, fc.boolean()).map(
        ([picked, asVoid]) =>
          (read: readonly Read[]) =>
            reviveParked(tables, chosen(read, picked).map(identity), { asVoid }),
      ),
    ),
    ...weighted(
      1,
      fc.constant((read: readonly Read[]) => selectQuiet(tables, read.map(identity), never)),
    ),
    ...weighted(
      1,
      fc.constant(() => pullBackRetries(tables, 1_000)),
    ),
    ...weighted(
      1,
      fc.constant(() => wakeTopics(tables, ['t'], never)),
    ),
  )
  return statement
}

/** A settlement of what was read last: some of it confirmed, some of it stopped, some of it left alone. */
function settling(tables: OutboxTables): fc.Arbitrary<Step> {
  const row = fc.record({
    end: fc.constantFrom('confirmed', 'stopped', 'neither'),
    park: fc.boolean(),
    void: fc.boolean(),
    charge: fc.nat(1),
    delayMs: fc.constantFrom(0, never),
    error: fc.constantFrom('refused', shutError('t', 'missing')),
  })
  const token = fc.constantFrom(...tokens, null)
  return fc
    .record({
      rows: fc.array(row, { minLength: 6, maxLength: 6 }),
      token,
      depth: fc.constantFrom(0, 2, 100),
      relay: fc.constantFrom(...workers),
      ...fcKeep,
    })
    .map(({ rows, token: each, depth, relay, receipts }) => (read: readonly Read[]) => {
      const lanes = [0, 1].map((lane) => ({ lane, token: each }))
      const ended = read.flatMap((found, i) => {
        const fate = rows[i % rows.length]
        return fate === undefined ? [] : [{ ...fate, ...identity(found) }]
      })
      const confirmed = ended
        .filter(({ end }) => end === 'confirmed')
        .map(({ lane, seq, eventId }) => ({ lane, seq, eventId, messageId: 'm' }))
      const stopped = ended.filter(({ end }) => end === 'stopped')
      return settleDispatch(
        tables,
        relay,
        lanes,
        { confirmed, stopped, hold: lanes.map(({ lane }) => ({ lane, depth })) },
        { receipts, events: true },
      )
    })
}

const fcKeep = { receipts: fc.boolean() }

function adding(tables: OutboxTables): fc.Arbitrary<Step> {
  const aggregate = fc.constantFrom('a', 'b', 'c')
  const id = fc.uuid()
  const event = fc.record({ aggregate, id })
  return fc.oneof(
    event.map((each) => () => addEvent(tables, encoded(each))),
    fc.array(event, { minLength: 2, maxLength: 3 }).map(
      (events) => () =>
        addEvents(
          tables,
          events.map((each) => encoded(each)),
        ),
    ),
  )
}

export function encoded({
  aggregate,
  id,
  ...given
}: { readonly aggregate: string; readonly id: string } & Partial<EncodedEvent>): EncodedEvent {
  return {
    id,
    topic: 'topic',
    aggregateType: 'thing',
    aggregateId: aggregate,
    eventType: 'Happened',
    payload: Buffer.from(aggregate),
    schemaVersion: 1,
    contentType: 'application/json',
    headers: { trace: 'x' },
    version: undefined,
    notBefore: undefined,
    source: undefined,
    columns: undefined,
    ...given,
  }
}

export function weighted<T>(
  weight: number,
  arbitrary: fc.Arbitrary<T>,
): [{ readonly arbitrary: fc.Arbitrary<T>; readonly weight: number }] {
  return [{ arbitrary, weight }]
}

function chosen(read: readonly Read[], picked: readonly boolean[]): readonly Read[] {
  return read.filter((_, i) => picked[i % picked.length] === true)
}

function identity(row: Read): { readonly lane: number; readonly seq: string; readonly eventId: string } {
  return { lane: Number(row['lane']), seq: String(row['seq']), eventId: String(row['event_id']) }
}
