/**
 * What the relay's contenders share: a durable Postgres, a way to fill the outbox, and drains by different hands.
 *
 * Events are written straight into the tables, 300 bytes each, with ids like those of `add`, over 5,000 aggregates: filling is not what is measured. The
 * broker confirms at once with ids as long as Pub/Sub's, so that what is left is the database and our own work.
 */
import { systemClock } from '../../src/core/service/clock.ts'
import { defaultSignals } from '../../src/core/signals.ts'
import { createOutbox, type Outbox } from '../../src/outbox/outbox.ts'
import { confirmDispatch, readDispatch, type FoundRow } from '../../src/outbox/tables/dispatch.sql.ts'
import { createRelay } from '../../src/outbox/relay/relay.ts'
import type { RelayOptions } from '../../src/outbox/relay/relay-options.ts'
import { connect, type Connection } from '../../src/postgres/connect.ts'
import { one, rows } from '../../src/postgres/query/database.ts'
import { createLaneLeases } from '../../src/postgres/lanes/lane-leases.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { startPostgres } from '../../src/testing/servers/postgres.ts'
import type { Publisher } from '../../src/transport/port/transport.ts'

export interface OutboxBench {
  readonly db: Connection
  readonly url: string
  readonly outbox: Outbox
  close(): Promise<void>
}

export async function openOutboxBench(): Promise<OutboxBench> {
  const server = await startPostgres({
    durable: true,
    settings: { max_wal_size: '4GB', shared_buffers: '256MB', checkpoint_timeout: '30min' },
  })
  const db = connect({ url: server.url, max: 16 })
  await migrate(db, { schema: 'waybill', service: 'bench' })
  return {
    db,
    url: server.url,
    outbox: createOutbox(),
    close: async () => {
      await db.close()
      await server.stop()
    },
  }
}

/** `count` events over `keys` aggregates named after `prefix`, all due. */
export async function fill({ db }: OutboxBench, count: number, { prefix = 'a', keys = 5_000 } = {}): Promise<void> {
  await db.query(
    `with event as (
       select uuidv7() as id, $2::text || (g % $3::int) as aggregate_id, g / $3::int + 1 as version from generate_series(0, $1::int - 1) g
     ), added as (
       insert into waybill.outbox (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload)
       select id, 'bench.events', 'bench', aggregate_id, version, 'Happened', 1, 'application/json', convert_to(repeat('x', 300), 'UTF8') from event
     )
     insert into waybill.outbox_dispatch (lane, key, event_id)
     select key & 63, key, id from (
       select id, version, ('x' || encode(substring(sha256(convert_to('bench' || chr(31) || aggregate_id, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint as key from event) k
      order by version, key`,
    [count, prefix, keys],
  )
}

export async function empty({ db }: OutboxBench): Promise<void> {
  await db.query('truncate waybill.outbox, waybill.outbox_dispatch, waybill.outbox_receipt')
  await db.query('vacuum (analyze) waybill.outbox_lane')
}

/** Confirms at once and tells when it has seen enough. */
export function instantBroker(onCount: (published: number) => void = () => undefined): Publisher {
  let published = 0
  return {
    maxBytes: 10_000_000,
    publish: (messages) => {
      published += messages.length
      onCount(published)
      return Promise.resolve(
        messages.map((_, i) => ({ status: 'confirmed', messageId: String(8_000_000_000_000_000 + published + i) })),
      )
    },
  }
}

/** Events per second of `relays` relays that drain `count` events, or stop after them. */
export async function drain(
  { db, outbox }: OutboxBench,
  count: number,
  options: Partial<RelayOptions> & { readonly relays?: number } = {},
): Promise<number> {
  const { relays = 1, ...rest } = options
  const enough = new AbortController()
  let published = 0
  const broker = instantBroker()
  const counting: Publisher = {
    ...broker,
    publish: async (messages, publishOptions) => {
      published += messages.length
      if (published >= count) enough.abort()
      return await broker.publish(messages, publishOptions)
    },
  }
  const startedAt = performance.now()
  await Promise.all(
    Array.from(
      { length: relays },
      async () => await createRelay({ db, outbox, transport: counting, ...rest }).once(enough.signal),
    ),
  )
  return (published / (performance.now() - startedAt)) * 1_000
}

/** The limit: the relay's own statements in a bare loop, with nothing decided in between. */
export async function drainRaw({ db, outbox: { tables } }: OutboxBench): Promise<number> {
  const leases = createLaneLeases({
    db,
    tables,
    worker: 'raw',
    leaseMs: 600_000,
    renewMs: 200_000,
    clock: systemClock,
    signals: defaultSignals,
  })
  await leases.rebalance()
  const held = leases.held()
  const startedAt = performance.now()
  let published = 0
  for (;;) {
    const found = await rows(
      db,
      readDispatch(
        tables,
        held.map((each) => ({ ...each, window: 78 })),
        { heads: 64, chain: 16, bytes: 67_108_864 },
      ),
    )
    if (found.length === 0) break
    await one(db, confirmDispatch(tables, 'raw', held, found.map(confirmed), { receipts: true, events: true }))
    published += found.length
  }
  const elapsedMs = performance.now() - startedAt
  await leases.release({ leave: true })
  return (published / elapsedMs) * 1_000
}

function confirmed(row: FoundRow, i: number): { lane: number; seq: string; eventId: string; messageId: string } {
  return { lane: row.lane, seq: row.seq, eventId: row.event_id, messageId: String(8_000_000_000_000_000 + i) }
}

/** Bytes of write-ahead log that `work` makes. */
export async function walBytes({ db }: OutboxBench, work: () => Promise<unknown>): Promise<number> {
  const before = await position(db)
  await work()
  return (await position(db)) - before
}

async function position(db: Connection): Promise<number> {
  const { rows: found } = await db.query(`select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8 as bytes`)
  return (found[0] as { bytes: number }).bytes
}
