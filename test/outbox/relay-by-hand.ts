/**
 * A relay whose passes a test calls one by one, with steps that can be held up or replaced by broken ones.
 *
 * Its leases are long and its back-off is none, so that nothing happens by time alone: a test lets leases end and retries
 * fall due by saying so.
 */
import { createBreaker, type Breaker } from '../../src/core/service/breaker.ts'
import { systemClock, type Clock } from '../../src/core/service/clock.ts'
import { systemRandom } from '../../src/core/service/random.ts'
import { createLaneHints } from '../../src/outbox/wake-up/lane-hints.ts'
import { createLaneWindows } from '../../src/outbox/relay/read-sizes.ts'
import { relayPass } from '../../src/outbox/relay/pass.ts'
import { relaySteps, type RelaySteps } from '../../src/outbox/relay/steps.ts'
import { createTopicGates } from '../../src/outbox/relay/topic-breakers.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { noTracing } from '../../src/core/tracing.ts'
import { createLaneLeases, type LaneLeases } from '../../src/postgres/lanes/lane-leases.ts'
import type { Publisher } from '../../src/transport/port/transport.ts'
import type { OutboxFixture } from '../setup/outbox-fixture.ts'

export interface RelayByHand {
  readonly leases: LaneLeases
  pass(): Promise<'more' | 'idle'>
  /** Passes until one is idle; returns how many it took. */
  drain(): Promise<number>
}

export interface ByHandOptions {
  readonly db?: Database
  readonly name?: string
  readonly steps?: Partial<RelaySteps>
  readonly leaseMs?: number
  readonly maxAttempts?: number
  readonly backoffMs?: number
  readonly onPark?: 'hold' | 'pass'
  readonly batchSize?: number
  readonly isPaused?: (aggregateType: string, aggregateId: string) => boolean
  readonly clock?: Clock
  /** @default the relay's own */
  readonly newPass?: typeof relayPass
}

let relays = 0

export function relayByHand(fixture: Outboxed, publisher: Publisher, options: ByHandOptions = {}): RelayByHand {
  const { db = fixture.db, name = `relay-${(relays += 1)}`, leaseMs = 60_000, batchSize = 500, newPass = relayPass } = options
  const { tables } = fixture.outbox
  const common = { clock: options.clock ?? systemClock, signals: fixture.signals }
  const leases = createLaneLeases({ db, tables, worker: name, leaseMs, renewMs: leaseMs / 4, ...common })
  const newBreaker = (): Breaker =>
    createBreaker({ backoff: { firstMs: 1, maxMs: 1 }, ...common, random: systemRandom, onChange: () => {} })
  const step = newPass({
    ...common,
    tracing: noTracing,
    db,
    tables,
    relay: name,
    steps: { ...relaySteps, ...options.steps },
    publisher,
    leases,
    windows: createLaneWindows(batchSize, 5_000),
    hints: createLaneHints(systemClock, 0),
    breaker: newBreaker(),
    topics: createTopicGates({ newBreaker, restMs: () => 60_000 }),
    isAllPaused: () => false,
    planRules: { orderingOf: () => 'aggregate', isPaused: options.isPaused ?? (() => false) },
    outcomeRules: {
      maxAttempts: options.maxAttempts ?? 20,
      backoffMs: () => options.backoffMs ?? 0,
      onPark: () => options.onPark ?? 'hold',
    },
    keep: { receipts: true, events: true },
    publishTimeoutMs: 20_000,
    batch: { begin: () => ({ holds: () => {}, end: () => {} }) },
    onPublished: () => {},
  })
  const never = new AbortController().signal
  return {
    leases,
    pass: () => step(never),
    drain: async () => {
      for (let passes = 1; ; passes += 1) if ((await step(never)) === 'idle') return passes
    },
  }
}

/** What these functions need of a fixture. */
export type Outboxed = Pick<OutboxFixture, 'db' | 'outbox' | 'signals'>

/** Lets every lease and heartbeat end now, as if their owners had been silent for too long. */
export async function expireLeases({ db, outbox }: Outboxed): Promise<void> {
  await db.query(`update ${outbox.tables.lane.quoted} set lock_expires_at = clock_timestamp() - interval '1 second'`)
  await db.query(`delete from ${outbox.tables.worker.quoted}`)
}

/** Lets every retry fall due now. */
export async function retryNow({ db, outbox }: Outboxed): Promise<void> {
  await db.query(`update ${outbox.tables.dispatch.quoted} set next_retry_at = clock_timestamp() where state = 1`)
}

/** One lane for everything: keys that share a lane are what most of the rules are about. */
export async function useOneLane({ db, outbox }: Outboxed): Promise<void> {
  await db.query(`select ${outbox.tables.changeLanes.quoted}(1)`)
}
