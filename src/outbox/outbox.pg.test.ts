import { z } from 'zod'
import { describe, expect, test } from 'vitest'
import { accounts, outboxFixture, videos } from '../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { jsonCodec, type Codec } from '../core/encoding/codec.ts'
import { state } from '../core/event/event.ts'
import { businessKeyId } from '../core/event/id.ts'
import { stream } from '../core/event/stream.ts'
import { createTokens } from '../core/event/token.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { transaction } from '../postgres/transaction/transaction.ts'
import { memory } from '../transport/memory/memory.ts'
import { event } from './outbox.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

describe('versions', () => {
  test('are taken one after the other, and the token names the one that was taken', async () => {
    const { outbox } = await outboxFixture(db)
    const added = await transaction(db, async (tx) => [
      await outbox.add(tx, accounts.Deposited, 'a', { amount: 1 }),
      await outbox.add(tx, accounts.Deposited, 'a', { amount: 2 }),
      await outbox.add(tx, accounts.Deposited, 'b', { amount: 1 }),
    ])
    expect(added.map(({ version }) => version)).toEqual([1n, 2n, 1n])
    expect(createTokens().decode(added[1]?.token ?? '')).toEqual({ aggregateType: 'account', aggregateId: 'a', version: 2n })
  })

  test('of fifty writers at once have no gap and no double', async () => {
    const { outbox } = await outboxFixture(db)
    const write = async (): Promise<bigint> =>
      (await transaction(db, (tx) => outbox.add(tx, accounts.Deposited, 'hot', { amount: 1 }))).version
    const versions = await Promise.all(Array.from({ length: 50 }, write))
    expect(versions.toSorted((a, b) => Number(a - b))).toEqual(Array.from({ length: 50 }, (_, i) => BigInt(i + 1)))
  })

  test('that a caller gives must be the next one, alone and in bulk', async () => {
    const { outbox } = await outboxFixture(db)
    const give = (version: bigint | number): Promise<unknown> =>
      transaction(db, (tx) => outbox.add(tx, accounts.Deposited, 'a', { amount: 1 }, { version }))
    await give(7)
    await give(8)
    await expect(give(8)).rejects.toMatchObject({
      code: 'VERSION_OUT_OF_ORDER',
      message: expect.stringContaining('the next one is 9'),
    })
    await expect(give(10n)).rejects.toMatchObject({ code: 'VERSION_OUT_OF_ORDER' })
    const many = (...versions: number[]): Promise<unknown> =>
      transaction(db, (tx) =>
        outbox.addMany(
          tx,
          versions.map((version) => event(accounts.Deposited, 'a', { amount: 1 }, { version })),
        ),
      )
    await many(9, 10, 11)
    await expect(many(12, 14)).rejects.toMatchObject({ code: 'VERSION_OUT_OF_ORDER' })
    await expect(many(13, 12)).rejects.toMatchObject({ code: 'VERSION_OUT_OF_ORDER' })
    expect((await transaction(db, (tx) => outbox.add(tx, accounts.Deposited, 'a', { amount: 1 }))).version).toBe(12n)
  })

  test('hold up to 2^63 - 1', async () => {
    const { outbox } = await outboxFixture(db)
    const last = 9_223_372_036_854_775_807n
    const added = await transaction(db, (tx) => outbox.add(tx, accounts.Deposited, 'old', { amount: 1 }, { version: last }))
    expect(added.version).toBe(last)
  })
})

test('many events go in one call, in the order given, over several aggregates', async () => {
  const { outbox, states } = await outboxFixture(db)
  const events = Array.from({ length: 2_000 }, (_, i) => event(videos.VideoPublished, `v${i % 7}`, { title: String(i) }))
  const added = await transaction(db, (tx) => outbox.addMany(tx, events))
  expect(added.map(({ version }) => version)).toEqual(events.map((_, i) => BigInt(Math.floor(i / 7) + 1)))
  expect(Object.keys(await states())).toHaveLength(2_000)
})

test('two bulk writers of the same aggregates in opposite order do not deadlock', async () => {
  const { outbox } = await outboxFixture(db)
  const ids = Array.from({ length: 40 }, (_, i) => `v${i}`)
  const write = (order: readonly string[]): Promise<unknown> =>
    transaction(
      db,
      (tx) =>
        outbox.addMany(
          tx,
          order.map((id) => event(videos.VideoPublished, id, { title: id })),
        ),
      { retries: 0 },
    )
  await Promise.all(Array.from({ length: 10 }, (_, i) => write(i % 2 === 0 ? ids : ids.toReversed())))
})

test('the same source emits the same event once only', async () => {
  const { outbox, states } = await outboxFixture(db)
  const source = { name: 'catalog', eventId: businessKeyId('test', 'source'), ordinal: 0 }
  const emit = (ordinal: number, name = 'catalog'): Promise<{ added: boolean; version: bigint }> =>
    transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'v', { title: 'x' }, { source: { ...source, name, ordinal } }))
  expect(await emit(0)).toMatchObject({ added: true, version: 1n })
  expect(await emit(0)).toMatchObject({ added: false, token: '' })
  expect(await emit(1)).toMatchObject({ added: true, version: 2n })
  expect(await emit(0, 'other')).toMatchObject({ added: true, version: 3n })
  expect(Object.keys(await states())).toEqual(['v 1', 'v 2', 'v 3'])
})

test('an event id that was recorded before is refused, and the transaction with it', async () => {
  const { outbox } = await outboxFixture(db)
  const id = businessKeyId('order', ['shop', 17])
  const add = (): Promise<unknown> => transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'v', { title: 'x' }, { id }))
  await add()
  await expect(add()).rejects.toMatchObject({ code: 'INVALID_INPUT', message: expect.stringContaining('recorded before') })
})

test('columns that the user added are filled, and the others left alone', async () => {
  const { outbox } = await outboxFixture(db)
  await db.query(`alter table ${outbox.tables.schema}.outbox add column tenant text, add column region text`)
  await transaction(db, async (tx) => {
    await outbox.add(
      tx,
      videos.VideoPublished,
      'v',
      { title: 'one' },
      { columns: { tenant: 'acme', region: 'eu' }, headers: { a: 'b' } },
    )
    await outbox.add(tx, videos.VideoPublished, 'v', { title: 'two' })
  })
  const { rows } = await db.query(
    `select version::int, tenant, region, headers, convert_from(payload, 'UTF8') as payload from ${outbox.tables.schema}.outbox order by version`,
  )
  expect(rows).toEqual([
    { version: 1, tenant: 'acme', region: 'eu', headers: { a: 'b' }, payload: '{"title":"one"}' },
    { version: 2, tenant: null, region: null, headers: {}, payload: '{"title":"two"}' },
  ])
})

test('a bigint among the values of own columns is written as its digits, and what JSON cannot hold is refused by its path', async () => {
  const { outbox } = await outboxFixture(db)
  await db.query(`alter table ${outbox.tables.schema}.outbox add column amount bigint`)
  const add = (amount: unknown) =>
    transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'v', { title: 'one' }, { columns: { amount } }))
  await add(9_007_199_254_740_993n)
  await expect(add(Number.NaN)).rejects.toMatchObject({
    code: 'INVALID_INPUT',
    message: expect.stringContaining('columns.amount is NaN'),
  })
  const { rows } = await db.query(`select amount::text from ${outbox.tables.schema}.outbox`)
  expect(rows).toEqual([{ amount: '9007199254740993' }])
})

test('an event is never changed once it is recorded', async () => {
  const { outbox, publish } = await outboxFixture(db)
  await publish('v', 'one')
  await expect(db.query(`update ${outbox.tables.schema}.outbox set topic = 'other'`)).rejects.toThrow('append-only')
})

describe('what could not be published fails where it is added', () => {
  const small = stream('small', {
    topic: 'small.events',
    maxBytes: 1_000,
    events: { Said: state(z.object({ text: z.string() })) },
  })
  const refused = async (options: object, id = 's', text = ''): Promise<unknown> => {
    const { outbox } = await outboxFixture(db)
    return await transaction(db, (tx) => outbox.add(tx, small.Said, id, { text }, options)).then(
      () => undefined,
      (error: unknown) => error,
    )
  }
  test('the size counts the payload, the attributes and the headers', async () => {
    expect(await refused({}, 's', 'x'.repeat(773))).toBeUndefined()
    expect(await refused({}, 's', 'x'.repeat(774))).toMatchObject({
      code: 'TOO_LARGE',
      details: { bytes: 1_001, maxBytes: 1_000 },
    })
    expect(await refused({ headers: { a: 'b'.repeat(773) } })).toMatchObject({ code: 'TOO_LARGE' })
  })
  test.each([
    ['a header value over 1,024 bytes', { headers: { note: 'é'.repeat(513) } }],
    ['a header name over 256 bytes', { headers: { ['n'.repeat(257)]: 'x' } }],
    ['a header that Google keeps for itself', { headers: { googleThing: 'x' } }],
    ['more than 80 headers', { headers: Object.fromEntries(Array.from({ length: 81 }, (_, i) => [`h${i}`, 'x'])) }],
    ['a header that is no text', { headers: { n: 1 } }],
    ['a header name with NUL', { headers: { 'n\u0000': 'x' } }],
    ['a header name with half a surrogate pair', { headers: { 'n\ud83d': 'x' } }],
    ['a header value with half a surrogate pair', { headers: { n: '\ude00x' } }],
    ['an id that is no UUID', { id: 'seventeen' }],
    ['a date that is none', { notBefore: new Date('tomorrow') }],
    ['a date as text', { notBefore: '2030-01-01' }],
    ['a date after the last that can be written', { notBefore: new Date('9999-12-31T23:59:59.001Z') }],
    ['a date before Christ', { notBefore: new Date(-1e14) }],
  ])('%s', async (_, options) => {
    expect(await refused(options)).toMatchObject({ code: 'INVALID_INPUT' })
  })
  test.each(['aggregate', 'lane', 'version'] as const)(
    'whatever the names, an event that is taken is published by a transport of the same limit, ordered by %s',
    async (ordering) => {
      const { outbox, relay } = await outboxFixture(db)
      const name = `T${'y'.repeat(127)}`
      const bytes: Codec<Uint8Array> = {
        contentType: `text/${'é'.repeat(500)}`,
        encode: (data) => data,
        decode: (data) => data,
        validate: (data) => data as Uint8Array,
      }
      const wide = stream(`t${'y'.repeat(127)}`, {
        topic: 'wide.events',
        maxBytes: 2_000,
        ordering,
        events: { [name]: state(bytes) },
      })
      const add = (size: number): Promise<boolean> =>
        transaction(db, (tx) => outbox.add(tx, wide.events[name]!, `w${size}`, new Uint8Array(size))).then(
          () => true,
          () => false,
        )
      let taken = 0
      for (let size = 520; size < 560; size += 1) if (await add(size)) taken += 1
      expect(taken).toBeGreaterThan(0)
      expect(taken).toBeLessThan(40)
      expect(await relay(memory({ maxBytes: 2_000 }), { streams: [wide] }).once()).toBe(taken)
    },
  )
  test('a content type is at most 1,024 bytes', async () => {
    const { outbox } = await outboxFixture(db)
    const codec = (contentType: string): Codec<null> => ({ ...jsonCodec(z.null()), contentType })
    const [long, longer] = [codec('é'.repeat(512)), codec(`${'é'.repeat(512)}x`)]
    const typed = stream('typed', {
      topic: 'typed.events',
      maxBytes: 5_000,
      events: { Long: state(long), Longer: state(longer) },
    })
    await transaction(db, (tx) => outbox.add(tx, typed.Long, 't', null))
    const adding = transaction(db, (tx) => outbox.add(tx, typed.Longer, 't', null))
    await expect(adding).rejects.toMatchObject({ code: 'INVALID_INPUT', message: expect.stringMatching(/content type has more/) })
  })
  test('an aggregate id is text of at most 1,024 bytes', async () => {
    expect(await refused({}, 'é'.repeat(512) + 'x')).toMatchObject({
      code: 'INVALID_INPUT',
      message: expect.stringContaining('1024 bytes'),
    })
    expect(await refused({}, '')).toMatchObject({ code: 'INVALID_INPUT' })
    expect(await refused({}, 'a\u0000b')).toMatchObject({ code: 'INVALID_INPUT' })
    // As UTF-8 these two would be one and the same.
    for (const id of ['a\ud83d', 'a\ude00']) expect(await refused({}, id)).toMatchObject({ code: 'INVALID_INPUT' })
    expect(await refused({}, 'a\ud83d\ude00')).toBeUndefined()
  })
  test.each([
    ['add_event', `select %.add_event('small.events', 'small', $1, 'Said', '{}')`],
    [
      'add_events',
      `select %.add_events(array[gen_random_uuid(), gen_random_uuid()], array['small.events', 'small.events'], array['small', 'small'],
                           array['s', $1], array['Said', 'Said'], array['{}', '{}']::bytea[], array[7, 7])`,
    ],
  ])('plain SQL is held to the same aggregate ids by %s', async (_, text) => {
    const { schema } = (await outboxFixture(db)).outbox.tables
    const add = (id: string): Promise<unknown> => db.query(text.replace('%', schema), [id])
    for (const id of ['', 'x'.repeat(1_025), 'é'.repeat(513), 'x'.repeat(9_000)]) {
      const message = `An aggregate id must have 1 to 1024 bytes as UTF-8; this one of small has ${Buffer.byteLength(id)}`
      await expect(add(id)).rejects.toMatchObject({ code: '22023', message: expect.stringContaining(message) })
    }
    await expect(add(null as never)).rejects.toMatchObject({ code: '23502' })
    const written = `select octet_length(aggregate_id) as bytes from ${schema}.outbox union all select -1 from ${schema}.aggregate_version`
    expect((await db.query(written)).rows).toEqual([])
    await add('é'.repeat(512))
    expect((await db.query(written)).rows).toContainEqual({ bytes: 1_024 })
  })
  test('a schema that has no outbox says how to get one', async () => {
    const { outbox } = await outboxFixture(db)
    await db.query(`drop schema ${outbox.tables.schema} cascade`)
    const adding = transaction(db, (tx) => outbox.add(tx, small.Said, 's', { text: '' }))
    await expect(adding).rejects.toMatchObject({
      code: 'SCHEMA_MISMATCH',
      message: expect.stringContaining('waybill migrate up'),
    })
  })
})

describe('a trigger of the user’s that drops rows', () => {
  test.each(['outbox', 'outbox_dispatch'])(
    'of %s makes add fail, alone and in bulk, and nothing is left behind',
    async (table) => {
      const { outbox, dispatch } = await outboxFixture(db)
      const { schema } = outbox.tables
      const dropped = table === 'outbox' ? `new.aggregate_id = 'dropped'` : 'true'
      await db.query(`
      create function ${schema}.drop_some() returns trigger language plpgsql as $$ begin if ${dropped} then return null; end if; return new; end $$;
      create trigger drop_some before insert on ${schema}.${table} for each row execute function ${schema}.drop_some()`)
      const [one, many] = [{ title: 'one' }, ['kept', 'dropped'].map((id) => event(videos.VideoPublished, id, { title: id }))]
      const refused = {
        code: 'REFUSED',
        message: expect.stringMatching(/A trigger on the outbox .* dropped event .* of video dropped/),
      }
      if (table === 'outbox_dispatch') many.shift()
      await expect(transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'dropped', one))).rejects.toMatchObject(refused)
      await expect(transaction(db, (tx) => outbox.addMany(tx, many))).rejects.toMatchObject(refused)
      expect(await dispatch()).toEqual([])
      expect((await db.query(`select from ${schema}.outbox`)).rowCount).toBe(0)
    },
  )
})

test('a read-only transaction records nothing, and says so', async () => {
  const { outbox } = await outboxFixture(db)
  const adding = transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'a', { title: 'never' }), { readOnly: true })
  await expect(adding).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringContaining('this transaction is read only'),
  })
})
