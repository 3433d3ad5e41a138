/** What one transaction takes is bounded wherever its events come from, and the loop beside it shows that it lives. */
import { z } from 'zod'
import { expect, test } from 'vitest'
import { consumerFixture, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { claimCheck } from '../../codec/claim-check.ts'
import type { BlobStore } from '../../core/encoding/blob-store.ts'
import { systemClock } from '../../core/service/clock.ts'
import { jsonCodec } from '../../core/encoding/codec.ts'
import { state } from '../../core/event/event.ts'
import { stream } from '../../core/event/stream.ts'
import { rows } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { resolveConsumerOptions } from '../model/consumer-options.ts'
import { readRedriving } from '../tables/dead-letter.sql.ts'
import { fromStored } from '../model/decode.ts'
import { inboxTables } from '../tables/inbox.sql.ts'
import { createLeasedWork } from '../stored/redrive-and-release.ts'
import { pauseConsumer, resumeConsumer } from '../operate/pause.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'
import { RouteBook } from '../model/routes.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** A store that tells how many of its blobs were fetched at once. */
function countingStore(): BlobStore & { most(): number } {
  const kept = new Map<string, Uint8Array>()
  let [now, most] = [0, 0]
  return {
    put: async (key, bytes) => void (await Promise.resolve(kept.set(key, bytes))),
    get: async (key) => {
      most = Math.max(most, (now += 1))
      // All that are fetched together have begun by then.
      await new Promise((next) => setImmediate(next))
      now -= 1
      return kept.get(key)
    },
    most: () => most,
  }
}

test.each(['direct', 'stored'] as const)('payloads that are kept elsewhere count as what they are, in %s mode', async (mode) => {
  const store = countingStore()
  const codec = claimCheck(jsonCodec(z.object({ title: z.string() })), { store, thresholdBytes: 100 })
  const large = stream('large', { topic: 'large.events', events: { Written: state(codec) } })
  const fixture = await consumerFixture(db)
  const title = 'x'.repeat(1_000)
  const messages = Array.from({ length: 30 }, (_, i) => ({ id: `l${i}`, data: { title: `${title}${i}` } }))
  let broken = true
  const options = { mode, streams: [large], batchBytes: 2_500, concurrency: 1, lingerMs: 20, maxAttempts: 1 } as const
  const stop = fixture.start(
    fixture.consumer(options).on(large.Written, () => {
      if (broken) throw new Error('broken')
    }),
  )
  for (const { id, data } of messages) {
    const [only] = [published(id, 1)]
    const body = await codec.encode(data)
    await fixture.publish({
      ...only,
      topic: 'large.events',
      body,
      attributes: { ...only.attributes, aggregate_type: 'large', event_type: 'Written' },
    })
  }
  await eventually(async () => (await fixture.count('dead_letter', `state = 'dead'`)) === 30)
  broken = false
  await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await fixture.count('dead_letter', `state = 'redriven'`)) === 30)
  await stop()
  expect(store.most()).toBeGreaterThan(1)
  expect(store.most()).toBeLessThanOrEqual(3)
})

test('what is redriven is applied in batches, and every event of one shows that the consumer lives', async () => {
  const fixture = await consumerFixture(db)
  let [broken, skewMs] = [true, 0]
  const ages: number[] = []
  const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + skewMs }
  const consumer = fixture
    .consumer({ batchSize: 10, maxAttempts: 1, clock })
    .on(videos.VideoPublished, async ({ id }, { tx }) => {
      if (broken) throw new Error('broken')
      ages.push(consumer.lastPassAgeMs() ?? -1)
      skewMs += 1_000_000
      await tx.query(`insert into ${fixture.schema}.effect (event_id, note) values ($1, pg_current_xact_id()::text)`, [id])
    })
  const stop = fixture.start(consumer)
  await fixture.publish(...Array.from({ length: 25 }, (_, i) => published(`v${i}`, 1)))
  await eventually(async () => (await fixture.count('dead_letter', `state = 'dead'`)) === 25)
  broken = false
  await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await fixture.count('effect')) === 25)
  await stop()
  const batches = await fixture.query('select count(*)::int as count from $schema.effect group by note order by 1')
  expect(batches).toEqual([{ count: 5 }, { count: 10 }, { count: 10 }])
  expect(Math.max(...ages)).toBeLessThan(1_000_000)
})

test('a pause waits for what is in hand beside the loop', async () => {
  const fixture = await consumerFixture(db)
  const [handling, mayGoOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let looks = 0
  const counting: typeof db = {
    ...db,
    query: (text, values) => {
      if (text.includes('d.id as seq') || text.includes('paused')) looks += 1
      return db.query(text, values)
    },
  }
  const consumer = fixture.consumer({ db: counting }).on(videos.VideoPublished, async () => {
    handling.resolve()
    await mayGoOn.promise
  })
  const stop = fixture.start(consumer)
  await fixture.publish(published('v', 1))
  await handling.promise
  await pauseConsumer({ db, schema: fixture.schema, consumer: 'catalog', actor: 'ada' })
  await eventually(async () => (await fixture.query('select from $schema.consumer where paused')).length === 1)
  const before = looks
  await eventually(() => looks > before + 5)
  expect(fixture.heard('consumer.paused')).toEqual([])
  mayGoOn.resolve()
  await eventually(() => fixture.heard('consumer.paused').length === 1)
  await resumeConsumer({ db, schema: fixture.schema, consumer: 'catalog', actor: 'ada' })
  await fixture.publish(published('w', 1))
  await eventually(async () => (await fixture.count('inbox')) === 2)
  await stop()
})

test('what stands behind a letter in another’s hand is no work', async () => {
  const fixture = await consumerFixture(db)
  const broken = fixture.consumer({ maxAttempts: 1, onDead: 'pass' }).on(videos.VideoPublished, () => {
    throw new Error('broken')
  })
  const stop = fixture.start(broken)
  await fixture.publish(published('v', 1), published('v', 2))
  await eventually(async () => (await fixture.count('dead_letter', `state = 'dead'`)) === 2)
  await stop()
  await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  const book = new RouteBook('catalog', [videos])
  book.on(videos.VideoPublished, () => undefined)
  const routes = book.build()
  const options = { db, name: 'catalog', schema: fixture.schema, streams: [videos], transport: fixture.broker }
  const settings = resolveConsumerOptions(options)
  const scope = { tables: inboxTables(fixture.schema), consumer: 'catalog', generation: 1 }
  const found = await rows(db, readRedriving(scope, settings))
  const items = found.map((row) => fromStored(row, 'dead', routes)).filter((item) => item !== undefined)
  const worked: number[] = []
  const work = createLeasedWork({ settings, scope, work: async (open) => void (await Promise.resolve(worked.push(open.length))) })
  await transaction(db, async (tx) => {
    await tx.query(`select from ${fixture.schema}.dead_letter where version = 1 for update`)
    expect(await work(items)).toBe(0)
  })
  expect(await work(items)).toBe(2)
  expect(worked.at(-1)).toBe(2)
})
