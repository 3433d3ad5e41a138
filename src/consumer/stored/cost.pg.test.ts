import { expect, onTestFinished, test } from 'vitest'
import { consumerFixture, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { execute, type Tx } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import type { Statement } from '../../postgres/query/sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { archiveReceived } from '../tables/retention.sql.ts'
import { transferHolds } from '../tables/dead-letter.sql.ts'
import { inboxTables, movePositions, readVersions, storeWaiting, type Scope } from '../tables/inbox.sql.ts'
import type { Item } from '../model/batch-item.ts'
import { removeReceived, restReceived, setAside, type StoredPlace } from '../tables/stored.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

async function store(
  fixture: ConsumerFixture,
  rows: { readonly state: number; readonly key: string; readonly count: number },
): Promise<void> {
  await fixture.query(
    `insert into $schema.inbox_message (key, lane, state, consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, message_id, attributes, body, published_at, next_attempt_at)
     select ${rows.key}, 7, ${rows.state}, 'catalog', 1, gen_random_uuid(), 'video', (${rows.key})::text, n, 'video.events', 'm', '{}', '', now(), now() from generate_series(1, ${rows.count}) n`,
  )
}

/**
 * In one lane: a line of 30,000 behind its head, 2,000 that are due, and 30,000 that wait for their turn. The line came as due: what a
 * row leaves in an index when it changes its state stays there for as long as anybody may see it.
 */
async function burden(fixture: ConsumerFixture): Promise<void> {
  await store(fixture, { state: 1, key: '1', count: 1 })
  await store(fixture, { state: 0, key: '1', count: 30_000 })
  await fixture.query('update $schema.inbox_message set state = 2 where state = 0')
  await store(fixture, { state: 0, key: '100 + n', count: 2_000 })
  await store(fixture, { state: 4, key: '5', count: 30_000 })
  await fixture.query(
    `insert into $schema.consumer_position (consumer, generation, aggregate_type, aggregate_id, version, waiting) values ('catalog', 1, 'video', '5', 0, 30000)`,
  )
}

/** Somebody reads for as long as the test takes: until then nothing that they may see is cleared away. */
async function longReader(): Promise<void> {
  const client = await database.pool.connect()
  onTestFinished(() => client.release(true))
  await client.query('begin isolation level repeatable read')
  await client.query('select 1')
}

interface Read {
  readonly rows: number
  /** Of indexes, also those whose row is gone. */
  readonly entries: number
  /** Of indexes: who walks one and throws away what it meets reads no row. */
  readonly blocks: number
}

/** How much of the messages, or of another table, a statement reads: rows, or entries or blocks of indexes, whichever is most. What it did is undone. */
async function cost({ schema }: ConsumerFixture, statement: Statement, table = 'inbox_message'): Promise<number> {
  const read = async (tx: Tx): Promise<Read> => {
    const { rows } = await tx.query(
      `select (seq_tup_read + coalesce(idx_tup_fetch, 0))::int as rows, i.entries, i.blocks
         from pg_stat_xact_user_tables t cross join lateral (
           select sum(pg_stat_get_xact_tuples_returned(indexrelid))::int as entries,
                  sum(pg_stat_get_xact_blocks_fetched(indexrelid))::int as blocks
             from pg_index where indrelid = t.relid) i
        where relid = $1::text::regclass`,
      [`${schema}.${table}`],
    )
    return rows[0] as Read
  }
  const undone = new Error('undone')
  let looked = 0
  await transaction(db, async (tx) => {
    const before = await read(tx)
    await execute(tx, statement)
    const after = await read(tx)
    looked = Math.max(after.rows - before.rows, after.entries - before.entries, after.blocks - before.blocks)
    throw undone
  }).catch((error: unknown) => {
    if (error !== undone) throw error
  })
  return looked
}

async function places(fixture: ConsumerFixture, where: string, count: number): Promise<readonly StoredPlace[]> {
  return await fixture.query<StoredPlace>(
    `select m.lane, m.seq::text as seq, m.state from $schema.inbox_message m where ${where} order by m.seq limit ${count}`,
  )
}

const statistics: Readonly<Record<string, (fixture: ConsumerFixture) => Promise<void>>> = {
  'that has no statistics': burden,
  'with statistics from an empty table': async (fixture) => {
    // Pages without rows: of a table that never had any the planner would assume some.
    await store(fixture, { state: 0, key: 'n', count: 500 })
    await fixture.query('delete from $schema.inbox_message')
    await fixture.query('analyze $schema.inbox_message')
    await burden(fixture)
  },
  'with fresh statistics': async (fixture) => {
    await burden(fixture)
    await fixture.query('analyze $schema.inbox_message')
  },
}

test.each(Object.entries(statistics))(
  'a line of 30,000, as many that wait and what they left in the indexes cost a batch and a failure nothing, in a table %s',
  async (_, fill) => {
    const fixture = await consumerFixture(db)
    await fixture.query('alter table $schema.inbox_message set (autovacuum_enabled = off)')
    await longReader()
    await fill(fixture)
    const scope: Scope = { tables: inboxTables(fixture.schema), consumer: 'catalog', generation: 1 }
    const rest = { delayMs: 1_000, error: 'e' }
    const due = await places(fixture, 'm.state = 0', 20)
    const line = await places(fixture, 'm.state in (1, 2)', 20)
    const statements = [due, line].flatMap((some) => [
      removeReceived(scope, some),
      setAside(scope, some),
      archiveReceived(scope, some),
      ...[some[0], some[9]].map((place) => restReceived(scope, place as StoredPlace, rest)),
    ])
    const waiting = { event: { aggregateType: 'video', aggregateId: '5' } } as Item
    const costs: number[] = []
    for (const statement of [...statements, readVersions(scope, [waiting])]) costs.push(await cost(fixture, statement))
    // Twenty rows, each with a look or two around it, and written in every index.
    expect(costs.map((each) => (each > 500 ? each : 'little'))).toEqual(costs.map(() => 'little'))
  },
)

/** As many aggregates as a consumer may have met before the first statistics of its tables. */
async function metMany(fixture: ConsumerFixture, count: number): Promise<void> {
  await fixture.query(
    `insert into $schema.consumer_position (consumer, generation, aggregate_type, aggregate_id, version) select 'catalog', 1, 'video', n::text, 1 from generate_series(1, ${count}) n`,
  )
}

const met: Readonly<Record<string, (fixture: ConsumerFixture) => Promise<void>>> = {
  'that have no statistics': (fixture) => metMany(fixture, 30_000),
  'with statistics from empty tables': async (fixture) => {
    await metMany(fixture, 500)
    await fixture.query('delete from $schema.consumer_position')
    await fixture.query('analyze $schema.consumer_position')
    await metMany(fixture, 30_000)
  },
  'with fresh statistics': async (fixture) => {
    await metMany(fixture, 30_000)
    await fixture.query('analyze $schema.consumer_position')
  },
}

test.each(Object.entries(met))(
  '30,000 aggregates that a consumer has met cost a batch nothing, in tables %s',
  async (kind, fill) => {
    const fixture = await consumerFixture(db)
    for (const table of ['consumer_position', 'inbox_message'])
      await fixture.query(`alter table $schema.${table} set (autovacuum_enabled = off)`)
    await fill(fixture)
    await store(fixture, { state: 0, key: 'n', count: 20 })
    const scope: Scope = { tables: inboxTables(fixture.schema), consumer: 'catalog', generation: 1 }
    const ids = Array.from({ length: 20 }, (__, n) => String(1_000 * n + 1))
    const items = ids.map((id) => itemOf(id))
    const named = ids.map((aggregateId) => ({ aggregateType: 'video', aggregateId }))
    const found = await places(fixture, 'm.state = 0', 20)
    const statements = {
      movePositions: movePositions(
        scope,
        named.map((each) => ({ ...each, version: 2n, taken: undefined, release: false })),
      ),
      transferHolds: transferHolds(
        scope,
        named.map((each) => ({ ...each, heldBy: '00000000-0000-8000-8000-000000000002' })),
      ),
      setAside: setAside(scope, found),
      readVersions: readVersions(scope, items),
    }
    // Their rows are not locked, so they are joined: statistics that say there is nothing are believed.
    const joined = kind === 'with statistics from empty tables' ? {} : { storeWaiting: storeWaiting(scope, items) }
    const much: unknown[] = []
    for (const [name, each] of Object.entries({ ...statements, ...joined })) {
      const looked = await cost(fixture, each, 'consumer_position')
      if (looked > 500) much.push([name, looked])
    }
    expect(much).toEqual([])
  },
)

function itemOf(aggregateId: string): Item {
  const id = `00000000-0000-8000-8000-${aggregateId.padStart(12, '0')}`
  const event = { id, aggregateType: 'video', aggregateId, version: 3n }
  const message = { topic: 't', messageId: 'm', attributes: {}, body: new Uint8Array(), publishedAtMs: 0 }
  return { event, message } as unknown as Item
}
