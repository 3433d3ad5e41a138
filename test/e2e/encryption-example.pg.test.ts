/** The encryption of examples/encryption: what is stored, what opens, and what a consumer does when a key is gone. */
import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import {
  changeCustomer,
  createView,
  customerStream,
  customerTables,
  forgetCustomer,
  type Customers,
} from '../../examples/encryption/customers.ts'
import { dataKeys, dataKeyTable, localKeyPort, type DataKeys, type KeyPort } from '../../examples/encryption/data-keys.ts'
import { sealed, sealedResponses } from '../../examples/encryption/sealed.ts'
import { createCommands } from '../../src/command/commands.ts'
import { memoryCache } from '../../src/command/cache/memory.ts'
import { createConsumer } from '../../src/consumer/consumer.ts'
import type { ConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import { jsonCodec } from '../../src/core/encoding/codec.ts'
import { WaybillError } from '../../src/core/errors.ts'
import { state } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { createTestKit } from '../../src/testing/kit/test-kit.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { startChild } from '../../src/testing/process/child.ts'
import { z } from 'zod'
import { consumerFixture, type ConsumerFixture } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await db.query(`${dataKeyTable}; ${customerTables}`)
const kek = randomBytes(32)
const keys = dataKeys({ db, port: localKeyPort(kek) })
const customers = customerStream(keys)
const ada = { name: 'Ada', email: 'ada@example.com' }
const about = { aggregateType: 'customer', aggregateId: 'c1', eventType: 'CustomerChanged', schemaVersion: 1 }
const codec = customers.CustomerChanged.codec
const corrupt = expect.objectContaining({ code: 'CORRUPT', retryable: false }) as Error

let names = 0
const newId = (): string => `customer-${(names += 1)}`

async function setUp(withKeys: DataKeys = keys, ofThese: Customers = customers) {
  const fixture = await consumerFixture(db)
  const { outbox, schema } = fixture
  const kit = createTestKit({ db, outbox, transport: fixture.broker })
  const cache = memoryCache()
  const commands = createCommands({ db, outbox, schema, cache, responses: sealedResponses(withKeys) })
  const uncached = createCommands({ db, outbox, schema, responses: sealedResponses(withKeys) })
  const view = (options: Partial<ConsumerOptions> = {}) =>
    createView(
      { db, transport: fixture.broker, schema, lingerMs: 1, pollMs: 5, backoff: { firstMs: 1, maxMs: 2 }, ...options },
      ofThese,
    )
  const publish = async (): Promise<void> => void (await kit.drain())
  return { fixture, commands, uncached, view, publish, change: changeCustomer(ofThese) }
}

async function viewOf(id: string): Promise<unknown> {
  const { rows } = await db.query(
    'select name, version::int as version, deleted_at is not null as gone from public.customer_view where customer_id = $1',
    [id],
  )
  return rows[0]
}

async function everythingOf({ query }: ConsumerFixture): Promise<string> {
  const events = await query(`select encode(payload, 'escape') as text from $schema.outbox`)
  return JSON.stringify([events, await query('select response from $schema.command_marker')])
}

test('what is written is read again with its key, and opens nowhere else', async () => {
  const bytes = await codec.encode(ada, about)
  expect(await codec.decode(bytes, 1, about)).toEqual(ada)
  expect(Buffer.from(bytes).includes('Ada')).toBe(false)
  for (const other of [{ aggregateId: 'c2' }, { eventType: 'CustomerMoved' }])
    await expect(async () => await codec.decode(bytes, 1, { ...about, ...other })).rejects.toThrow(WaybillError)
  await expect(async () => await codec.decode(bytes, 2, about)).rejects.toThrow(corrupt)
  for (const place of bytes.keys()) {
    const other = Uint8Array.from(bytes)
    other[place] = (other[place] as number) ^ 1
    await expect(async () => await codec.decode(other, 1, about)).rejects.toThrow(WaybillError)
  }
  await expect(async () => await codec.decode(new TextEncoder().encode('{"name":"Eve"}'), 1, about)).rejects.toThrow(corrupt)
})

test('with another key-encryption key nothing opens, and the event is a dead letter that says so', async () => {
  const stranger = customerStream(dataKeys({ db, port: localKeyPort(randomBytes(32)) }))
  const { fixture, commands, publish, change } = await setUp()
  const id = newId()
  await commands.run(change, { principal: 'ann', requestId: id, input: { id, ...ada } })
  await publish()
  const options = { db, transport: fixture.broker, schema: fixture.schema, lingerMs: 1, pollMs: 5 }
  const stop = fixture.start(createView(options, stranger))
  await eventually(async () => expect(await fixture.count('dead_letter', `error like '%does not open%'`)).toBe(1))
  expect(await viewOf(id)).toBeUndefined()
  await stop()
})

test('neither the outbox nor the marker nor the cache holds what was sealed, and a repeat is told all of it', async () => {
  const { fixture, commands, uncached, change } = await setUp()
  const id = newId()
  const request = { principal: 'ann', requestId: id, input: { id, ...ada } }
  expect(await commands.run(change, request)).toMatchObject({ status: 'executed', response: { id, ...ada } })
  expect(await commands.run(change, request)).toMatchObject({ status: 'replayed', from: 'cache', response: { id, ...ada } })
  expect(await uncached.run(change, request)).toMatchObject({ status: 'replayed', from: 'marker', response: { id, ...ada } })
  expect(await everythingOf(fixture)).not.toMatch(/Ada|ada@/)
})

test('a shredded customer is gone from the view, and a rebuild that meets the old events goes on', async () => {
  const { fixture, commands, uncached, publish, view, change } = await setUp()
  const id = newId()
  const request = { principal: `owner of ${id}`, requestId: id, input: { id, ...ada } }
  await commands.run(change, request)
  await commands.run(change, { ...request, requestId: `${id} again`, input: { id, ...ada, name: 'Ada L.' } })
  await publish()
  const stopFirst = fixture.start(view())
  await eventually(async () => expect(await viewOf(id)).toEqual({ name: 'Ada L.', version: 2, gone: false }))
  await stopFirst()

  await forgetCustomer({ db, outbox: fixture.outbox, keys, customers }, id)
  await db.query('delete from public.customer_view where customer_id = $1', [id])
  // Another consumer, from the first event on: it meets what cannot be read any more, and then the tombstone.
  const seen: unknown[] = []
  const auditor = createConsumer({
    db,
    transport: fixture.broker,
    schema: fixture.schema,
    name: 'auditor',
    streams: [customers],
    lingerMs: 1,
  })
  auditor.on(customers.CustomerChanged, ({ data, version }) => void seen.push([data.name, version]))
  const stop = fixture.start(view(), auditor)
  await publish()
  await eventually(async () => expect(await viewOf(id)).toMatchObject({ version: 3, gone: true }))
  await eventually(() =>
    expect(seen).toEqual([
      ['(forgotten)', 1n],
      ['(forgotten)', 2n],
    ]),
  )
  expect(await fixture.count('dead_letter')).toBe(0)
  await stop()

  // The answer was sealed for its principal, who still has a key; without that it is one that was not kept.
  expect(await uncached.run(change, request)).toMatchObject({ status: 'replayed', response: { id, ...ada } })
  await keys.shred(db, { type: 'principal', id: request.principal })
  for (const each of [commands, uncached])
    expect(await each.run(change, request)).toMatchObject({ status: 'failed', code: 'ALREADY_COMMITTED' })
})

test('nothing new is sealed for who was shredded: the change is refused in its transaction', async () => {
  const { commands, fixture, change } = await setUp()
  const id = newId()
  await keys.shred(db, { type: 'customer', id })
  const outcome = commands.run(change, { principal: 'ann', requestId: id, input: { id, ...ada } })
  await expect(outcome).rejects.toThrow(/was shredded/)
  expect(await fixture.count('outbox')).toBe(0)
})

test('without a stand-in a shredded event is refused and becomes a dead letter', async () => {
  const plain = stream('customer', {
    topic: 'plain.events',
    events: { CustomerChanged: state(sealed(jsonCodec(z.object({ name: z.string() })), { keys })) },
  })
  const bytes = await plain.CustomerChanged.codec.encode({ name: 'Ada' }, { ...about, aggregateId: 'c9' })
  await keys.shred(db, { type: 'customer', id: 'c9' })
  await expect(async () => await plain.CustomerChanged.codec.decode(bytes, 1, { ...about, aggregateId: 'c9' })).rejects.toThrow(
    expect.objectContaining({ code: 'NOT_FOUND', retryable: false }),
  )
})

test('while the keys cannot be reached an event waits and is charged nothing, and a repeat is told to come again', async () => {
  let [isDown, refused] = [false, 0]
  const away = (): never => {
    refused += 1
    throw new WaybillError('UNAVAILABLE', 'The key service is away.', { retryable: true })
  }
  const local = localKeyPort(kek)
  const port: KeyPort = { wrap: local.wrap, unwrap: async (...args) => (isDown ? away() : await local.unwrap(...args)) }
  const fragile = dataKeys({ db, port })
  const { fixture, commands, uncached, publish, view, change } = await setUp(fragile, customerStream(fragile))
  const id = newId()
  const request = { principal: 'ann', requestId: id, input: { id, ...ada } }
  await commands.run(change, request)
  isDown = true
  for (const each of [commands, uncached])
    expect(await each.run(change, request)).toMatchObject({ status: 'failed', code: 'UNAVAILABLE' })
  await publish()
  const before = refused
  const stop = fixture.start(view())
  await eventually(() => expect(refused).toBeGreaterThan(before + 2))
  isDown = false
  await eventually(async () => expect(await viewOf(id)).toEqual({ name: 'Ada', version: 1, gone: false }))
  expect(await fixture.count('dead_letter')).toBe(0)
  await stop()
  expect(await uncached.run(change, request)).toMatchObject({ status: 'replayed', response: { id, ...ada } })
})

test('the example runs, and shows sealed bytes and a customer who is gone', async () => {
  await using child = startChild(new URL('../../scripts/example.ts', import.meta.url), { args: ['encryption'] })
  expect(await child.line(/^The view has/)).toMatch(/\{"name":"Ada","version":"1"\}/)
  expect(await child.line(/^The view of a forgotten one/)).toMatch(/"gone":true/)
  expect(await child.exited).toMatchObject({ code: 0 })
}, 180_000)
