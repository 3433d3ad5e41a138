import { describe, expect, test } from 'vitest'
import { reading, readingKey, readings } from '../../test/ingest/readings.ts'
import { consumerFixture, type ConsumerFixture } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { createIngestClient } from '../ingest/ingest-client.ts'
import { createIngest } from '../ingest/ingest.ts'
import { fetchIngest } from '../integrations/fetch.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { eventually } from '../testing/kit/eventually.ts'
import type { ConsumerOptions } from './model/consumer-options.ts'
import type { Consumer } from './consumer.ts'
import { processedBy } from './operate/processed-by.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const ingestOf = (fixture: ConsumerFixture) =>
  createIngest({
    event: readings.ReadingTaken,
    key: readingKey,
    to: fixture.broker,
    processed: processedBy(db, 'catalog', { schema: fixture.schema }),
  })

/** Keeps the value of each reading that it was given. */
function handling(fixture: ConsumerFixture, options: Partial<ConsumerOptions> = {}): Consumer {
  return fixture.consumer({ streams: [readings], ...options }).on(readings.ReadingTaken, async (event, { tx }) => {
    await tx.query(`insert into ${fixture.schema}.effect (event_id, note) values ($1, $2)`, [event.id, String(event.data.value)])
  })
}

function projecting(fixture: ConsumerFixture, options: Partial<ConsumerOptions> = {}): Consumer {
  return fixture.consumer({ streams: [readings], ...options }).project(readings, {
    table: `${fixture.schema}.video_view`,
    key: 'video_id',
    set: ({ data }) => ({ title: String(data.value) }),
  })
}

const repeats = (fixture: ConsumerFixture): number =>
  fixture.heard('consumer.applied').reduce((sum, { duplicates }) => sum + duplicates, 0)

/** Sends a fact, the same again, and others under its key, each after the one before was processed; returns its id. */
async function sendConflict(fixture: ConsumerFixture): Promise<string> {
  const ingest = ingestOf(fixture)
  const outcome = await ingest.accept(reading(1))
  await eventually(async () => (await fixture.count('inbox')) === 1)
  await ingest.accept({ ...reading(1) })
  await eventually(() => expect(repeats(fixture)).toBe(1))
  expect(fixture.heard('consumer.fact-conflict')).toEqual([])
  expect(await ingest.status(readingKey(reading(1)))).toMatchObject({ processed: true, conflict: false })
  await ingest.acceptMany([{ ...reading(1), value: -1 }, reading(2)])
  await eventually(() => expect(repeats(fixture)).toBe(2))
  await eventually(async () => (await fixture.count('inbox')) === 2)
  return (outcome as { eventId: string }).eventId
}

describe('one key with two contents over a broker', () => {
  test.each<[string, (fixture: ConsumerFixture) => Consumer]>([
    ['with handlers', handling],
    ['with rows', projecting],
    ['with rows alone, and positions where they are needed', (fixture) => projecting(fixture, { positions: 'needed' })],
    ['of stored messages', (fixture) => handling(fixture, { mode: 'stored' })],
  ])('is noticed by a consumer %s; the first one stays, and a repeat of it is none', async (_what, open) => {
    const fixture = await consumerFixture(db)
    const stop = fixture.start(open(fixture))
    const eventId = await sendConflict(fixture)
    await stop()
    expect(fixture.heard('consumer.fact-conflict')).toEqual([
      { consumer: 'catalog', eventId, eventType: 'ReadingTaken', aggregateType: 'reading', aggregateId: 'meter-1/1' },
    ])
    const seen = [
      ...(await fixture.query('select note from $schema.effect')),
      ...(await fixture.query('select title as note from $schema.video_view')),
    ]
    expect(seen.map((row) => (row as { note: string }).note).toSorted()).toEqual(['2', '4'])
    expect(await fixture.count('inbox', 'conflicted_at is not null')).toBe(1)
  })

  test('is told by GET, and ends the question of a client', async () => {
    const fixture = await consumerFixture(db)
    const stop = fixture.start(handling(fixture))
    const eventId = await sendConflict(fixture)
    await stop()
    const handler = fetchIngest(ingestOf(fixture), { path: '/' })
    const ask = async (path: string): Promise<unknown> => await (await handler(new Request(`http://service${path}`))).json()
    expect(await ask('/meter-1/1')).toEqual({ eventId, processed: true, conflict: true })
    expect(await ask('/meter-2/2')).toMatchObject({ processed: true })
    expect(await ask('/meter-3/3')).toMatchObject({ processed: false })
    const client = createIngestClient({
      url: 'http://service',
      fetch: async (url, init) => await handler(new Request(url, init)),
    })
    await expect(client.processed(['meter-1', 1])).rejects.toMatchObject({ code: 'FACT_CONFLICT', retryable: false })
    expect(await client.processed(['meter-2', 2])).toBe(true)
  })

  test('is noticed also where both come in one delivery of the broker', async () => {
    const fixture = await consumerFixture(db)
    const ingest = ingestOf(fixture)
    await ingest.acceptMany([reading(1), { ...reading(1), value: -1 }])
    const stop = fixture.start(handling(fixture, { lingerMs: 50 }))
    await eventually(() => expect(repeats(fixture)).toBe(1))
    await stop()
    expect(fixture.heard('consumer.fact-conflict')).toHaveLength(1)
    expect(await fixture.count('effect')).toBe(1)
  })
})
