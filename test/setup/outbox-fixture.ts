/**
 * A migrated schema with an outbox, a stream of each kind, and the questions that relay tests ask.
 */
import { delta, state, tombstone } from '../../src/core/event/event.ts'
import { createSignals, type SignalBus } from '../../src/core/signals.ts'
import { stream } from '../../src/core/event/stream.ts'
import { createOutbox, event, type Outbox } from '../../src/outbox/outbox.ts'
import { createRelay, type Relay } from '../../src/outbox/relay/relay.ts'
import type { RelayOptions } from '../../src/outbox/relay/relay-options.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import type { MemoryTransport } from '../../src/transport/memory/memory.ts'
import { z } from 'zod'
import { nextSchema } from './ready-schemas.ts'

/** An account with deltas, a video with whole states. */
export const accounts = stream('account', {
  topic: 'bank.events',
  events: { Deposited: delta(z.object({ amount: z.number() })) },
})
export const videos = stream('video', {
  topic: 'video.events',
  events: { VideoPublished: state(z.object({ title: z.string() })), VideoRemoved: tombstone() },
})

export interface OutboxFixture {
  readonly db: Database
  readonly outbox: Outbox
  readonly signals: SignalBus
  /** Adds one state event per title, each in a transaction of its own. */
  publish(id: string, ...titles: readonly string[]): Promise<void>
  /** Adds `count` events to each of the ids in one transaction. */
  fill(ids: readonly string[], count: number): Promise<void>
  relay(transport: RelayOptions['transport'], options?: Partial<RelayOptions>): Relay
  /** `'v1 1'`, `'v1 2'` … as the view shows them, with their states. */
  states(): Promise<Record<string, string>>
  dispatch(): Promise<readonly Record<string, unknown>[]>
}

export async function outboxFixture(db: Database): Promise<OutboxFixture> {
  const schema = nextSchema()
  await migrate(db, { schema, service: 'test' })
  const outbox = createOutbox({ schema })
  const signals = createSignals()
  return {
    db,
    outbox,
    signals,
    publish: async (id, ...titles) => {
      for (const title of titles) await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, id, { title }))
    },
    fill: async (ids, count) => {
      const events = Array.from({ length: count }, (_, i) =>
        ids.map((id) => event(videos.VideoPublished, id, { title: String(i) })),
      )
      await transaction(db, (tx) => outbox.addMany(tx, events.flat()))
    },
    relay: (transport, options) => createRelay({ db, outbox, transport, signals, backoff: { firstMs: 1, maxMs: 1 }, ...options }),
    states: async () => {
      const { rows } = await db.query(`select aggregate_id, version, state from ${schema}.outbox_status order by 1, 2`)
      return Object.fromEntries(
        (rows as { aggregate_id: string; version: string; state: string }[]).map((row) => [
          `${row.aggregate_id} ${row.version}`,
          row.state,
        ]),
      )
    },
    dispatch: async () => {
      const { rows } = await db.query(`select * from ${schema}.outbox_dispatch order by lane, seq`)
      return rows as Record<string, unknown>[]
    },
  }
}

/** What the broker has, in its order: `'v1 1'`, `'v1 2'` … */
export function log(broker: MemoryTransport): string[] {
  return broker.published.map(({ attributes }) => `${attributes['aggregate_id']} ${attributes['version']}`)
}

/** The versions of one aggregate in the order in which each first reached the broker. */
export function firstOccurrences(broker: MemoryTransport, id: string): number[] {
  const versions = broker.published
    .filter(({ attributes }) => attributes['aggregate_id'] === id)
    .map(({ attributes }) => Number(attributes['version']))
  return [...new Set(versions)]
}
