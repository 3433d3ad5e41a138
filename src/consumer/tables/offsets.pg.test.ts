import { expect, test } from 'vitest'
import { accounts, deposited, mails, message, published, removed, videos } from '../../../test/setup/consumer-fixture.ts'
import { logFixture } from '../../../test/setup/log-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { randomInt, seededRandom } from '../../core/service/random.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Transport } from '../../transport/port/transport.ts'
import type { Consumer } from '../consumer.ts'
import { inboxTables } from './inbox.sql.ts'
import { ItemFailure, type Item } from '../model/batch-item.ts'
import { pauseConsumer, resumeConsumer } from '../operate/pause.ts'
import { replayConsumer } from '../operate/replay.ts'
import { placeOf } from '../model/batch-item.ts'
import { moveOver, takeOffsets } from './offsets.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** A database whose transactions wait for the gate: a process that was stopped. */
function gated(): { readonly db: Database; readonly open: () => void } {
  const gate = Promise.withResolvers<void>()
  return {
    db: {
      query: (text, values) => db.query(text, values),
      attempt: async (options, work) => {
        await gate.promise
        return await db.attempt(options, work)
      },
    },
    open: gate.resolve,
  }
}

test('offsets move with the effects, a restart goes on behind them, and no inbox is needed', async () => {
  const w = await logFixture(db)
  w.log.append('0', [published('a', 1), published('b', 1), published('a', 2)], { hole: 3 })
  const first = w.start(w.recorder())
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => (await w.effects()).length === 3)
  await first()
  expect(await w.offsets()).toEqual(['0 12'])

  w.log.append('0', [published('a', 3)], { hole: 3 })
  const second = w.start(w.recorder())
  await eventually(() => w.log.members.length === 2)
  await w.log.assign(w.log.members[1], ['0', '1'])
  await eventually(async () => (await w.effects()).length === 4)
  await second()
  expect((await w.effects()).toSorted()).toEqual(['a 1', 'a 2', 'a 3', 'b 1'])
  expect(await w.offsets()).toEqual(['0 16'])
  expect(await w.count('inbox')).toBe(0)
})

test('a replay is refused, for the broker is not asked where to begin', async () => {
  const w = await logFixture(db)
  w.log.append('0', [published('a', 1)])
  const stop = w.start(w.recorder())
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => (await w.effects()).length === 1)
  await stop()
  const moved: string[] = []
  const transport: Pick<Transport, 'seek'> = { seek: async ({ topic }) => void moved.push(topic) }
  const replay = { db, schema: w.schema, transport, consumer: 'catalog', topics: ['video.events'], to: 'earliest' } as const
  await expect(replayConsumer({ ...replay, beyondMemory: true })).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringContaining('keeps its offsets in Postgres'),
  })
  expect(moved).toEqual([])
})

test('an event that was published twice is handled once: its version says so', async () => {
  const w = await logFixture(db)
  const twice = published('a', 1)
  w.log.append('0', [twice, twice, published('a', 2), twice, published('a', 3)])
  const stop = w.start(w.recorder())
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => (await w.offsets())[0] === '0 5')
  await stop()
  expect(await w.effects()).toEqual(['a 1', 'a 2', 'a 3'])
})

test.each([published('a', 4), removed('a', 4)])(
  'without an inbox, what is delivered before anybody looked at what waits comes behind it ($attributes.event_type)',
  async (last) => {
    const w = await logFixture(db)
    const action = { db, schema: w.schema, consumer: 'catalog', aggregate: { type: 'video', id: 'a' }, actor: 'ada' }
    w.log.append('0', [published('a', 1)])
    const table = { table: `${w.schema}.video_view`, key: 'video_id' } as const
    const recorder = (pollMs: number): Consumer =>
      w.recorder({ pollMs }).project(videos, { ...table, set: (event) => ({ title: event.data.title }) })
    const first = w.start(recorder(600_000))
    await eventually(() => w.log.members.length === 1)
    await w.log.assign(w.log.members[0], ['0'])
    await eventually(async () => (await w.effects()).length === 1)
    await pauseConsumer(action)
    w.log.append('0', [published('a', 2), published('a', 3)])
    await eventually(async () => (await w.count('inbox_message')) === 2)
    await resumeConsumer(action)
    w.log.append('0', [last])
    await eventually(async () => (await w.offsets())[0] === '0 4')
    await first()
    // The last one waits, unless the only look of the first consumer came so late that it found it.
    expect((await w.effects()).slice(0, 3)).toEqual(['a 1', 'a 2', 'a 3'])
    const second = w.start(recorder(5))
    await eventually(async () => (await w.count('inbox_message')) === 0)
    await second()
    expect(await w.count('video_view', 'version = 4')).toBe(1)
    expect(await w.effects()).toEqual(['a 1', 'a 2', 'a 3', ...(last.body.length > 4 ? ['a 4'] : [])])
  },
)

test('a forged version is passed over in the order of the log, and nothing before or behind it is', async () => {
  const w = await logFixture(db)
  const forged = published('a', 2, 'forged', { version: (2n ** 63n - 1n).toString() })
  w.log.append('0', [published('a', 1), forged, published('a', 2), published('b', 1)])
  const stop = w.start(w.recorder({ maxVersionJump: 1_000, onVersionJump: 'dead-letter' }))
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => (await w.offsets())[0] === '0 4')
  await stop()
  expect(await w.effects()).toEqual(['a 1', 'a 2', 'b 1'])
  expect(await w.query('select reason from $schema.dead_letter')).toEqual([{ reason: 'version_jump' }])
})

test('what a stopped process has in hand changes nothing when another took over', async () => {
  const w = await logFixture(db)
  const zombie = gated()
  w.log.append(
    '0',
    Array.from({ length: 20 }, (_, i) => published(`v${i}`, 1)),
  )
  const stopZombie = w.start(w.recorder({ db: zombie.db, batchSize: 5 }))
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  const stop = w.start(w.recorder({ batchSize: 3 }))
  await eventually(() => w.log.members.length === 2)
  await w.log.assign(w.log.members[1], ['0'], { tell: false })
  await eventually(async () => (await w.offsets())[0] === '0 20')
  zombie.open()
  await eventually(() => w.heard('consumer.applied').reduce((sum, { duplicates }) => sum + duplicates, 0) >= 20)
  await stopZombie()
  await stop()
  expect(await w.effects()).toEqual(Array.from({ length: 20 }, (_, i) => `v${i} 1`))
})

test('a stretch that does not follow on what is done is refused, and so is a batch with a hole in it', async () => {
  const w = await logFixture(db)
  const scope = { tables: inboxTables(w.schema), consumer: 'catalog', generation: 1 }
  const place = (offset: bigint, from: bigint, begins = false): Parameters<typeof moveOver>[2][number] => ({
    topic: 't',
    partition: '0',
    offset,
    from,
    begins,
  })
  const move = (...places: Parameters<typeof moveOver>[2]): Promise<ReadonlyMap<string, bigint>> =>
    transaction(db, (tx) => moveOver(tx, scope, places))
  await expect(move(place(5n, 5n))).rejects.toMatchObject({ code: 'ABORTED' })
  expect([...(await move(place(5n, 5n, true), place(9n, 6n))).values()]).toEqual([5n])
  await expect(move(place(12n, 12n))).rejects.toMatchObject({ code: 'ABORTED' })
  await expect(move(place(12n, 11n, true))).rejects.toMatchObject({ code: 'ABORTED' })
  await expect(move(place(10n, 10n), place(13n, 13n))).rejects.toMatchObject({ code: 'ABORTED' })
  expect(await w.offsets()).toEqual(['0 10'])
  expect([...(await move(place(7n, 7n), place(12n, 8n))).values()]).toEqual([10n])
  expect([...(await move(place(7n, 7n))).values()]).toEqual([13n])
  // A hole in which all is done, behind one that is done and was handed out once more.
  expect([...(await move(place(5n, 5n), place(12n, 12n))).values()]).toEqual([13n])
  const items = [11n, 12n, 13n, 14n].map(
    (offset) => ({ origin: { kind: 'delivery', place: place(offset, offset) } }) as unknown as Item,
  )
  const open = await transaction(db, (tx) => takeOffsets(tx, scope, items))
  expect(open.map((item) => placeOf(item)?.offset)).toEqual([13n, 14n])
  expect(await w.offsets()).toEqual(['0 15'])
})

test('an event that fails long after the start knows its attempts, and they are forgotten with its effect', async () => {
  const w = await logFixture(db)
  const attempts: number[] = []
  w.log.append(
    '0',
    Array.from({ length: 20 }, (_, i) => published(`v${i}`, 1)),
  )
  const stop = w.start(
    w.recorder({ maxInFlight: 2, maxAttempts: 5 }, (name, attempt) => {
      if (name !== 'late 1') return
      attempts.push(attempt)
      if (attempts.length < 3) throw new Error('not yet')
    }),
  )
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => (await w.offsets())[0] === '0 20')
  w.log.append('0', [published('late', 1)])
  await eventually(async () => (await w.offsets())[0] === '0 21')
  await stop()
  expect(attempts).toEqual([1, 2, 3])
  expect(await w.count('delivery_attempt')).toBe(0)
})

test('a failure is not counted against an event that another instance has done', async () => {
  const w = await logFixture(db)
  w.log.append('0', [published('a', 1)])
  // After the transaction of the handler and before that of the charge.
  const attempt: typeof db.attempt = (options, work) =>
    db.attempt(options, work).catch(async (error: unknown) => {
      if (error instanceof ItemFailure)
        await w.query(
          `insert into $schema.consumer_offset (consumer, generation, topic, partition, next_offset) values ('catalog', 1, 'video.events', '0', 1)
           on conflict do nothing`,
        )
      throw error
    })
  const stop = w.start(w.recorder({ db: { ...db, attempt } }, () => expect.unreachable()))
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(() => w.heard('consumer.applied').some(({ duplicates }) => duplicates === 1))
  await stop()
  expect(await w.count('delivery_attempt')).toBe(0)
  expect(w.heard('consumer.failed')).toEqual([])
})

test('a failing event holds its partition in order and becomes a dead letter; another partition goes on', async () => {
  const w = await logFixture(db)
  const seen: string[] = []
  w.log.append('0', [published('a', 1), published('bad', 1), published('c', 1), published('a', 2)])
  w.log.append('1', [published('x', 1), published('y', 1)])
  const stop = w.start(
    w.recorder({ maxAttempts: 3 }, (name, attempt) => {
      seen.push(name)
      if (name === 'bad 1') throw new Error(`no, attempt ${attempt}`)
    }),
  )
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0', '1'])
  await eventually(async () => (await w.offsets()).join() === '0 4,1 2')
  await stop()
  expect(await w.count('dead_letter', `aggregate_id = 'bad' and attempts = 3`)).toBe(1)
  expect((await w.effects()).filter((name) => !/^[xy]/.test(name))).toEqual(['a 1', 'c 1', 'a 2'])
  expect(seen.lastIndexOf('bad 1')).toBeLessThan(seen.lastIndexOf('c 1'))
  expect(w.log.givenBack).toEqual([])
  // Those behind it waited in line; nobody came out of turn and had to be refused.
  expect(w.heard('consumer.retried')).toEqual([])
})

test('what is not ours is a dead letter in its turn, and the streams of others are passed over', async () => {
  const w = await logFixture(db)
  const foreign = { ...published('a', 1), attributes: {} }
  const other = { ...message({ stream: mails, type: 'MailRequested', id: 'm', version: 1 }, { to: 'x' }), topic: videos.topic }
  w.log.append('0', [other, published('a', 1), foreign, other, published('a', 2), other])
  const stop = w.start(w.recorder())
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => (await w.offsets())[0] === '0 5')
  await stop()
  expect(await w.effects()).toEqual(['a 1', 'a 2'])
  expect(await w.count('dead_letter', `reason = 'not_ours'`)).toBe(1)
})

test('what only another running version reads is put aside in the order of the log, and its offset moves with it', async () => {
  const w = await logFixture(db)
  const other = (version: number): OutgoingMessage => ({
    ...message({ stream: mails, type: 'MailRequested', id: 'm', version }, { to: 'x' }),
    topic: videos.topic,
  })
  const unread = { ...other(1), attributes: { ...other(1).attributes, aggregate_type: 'nobody' } }
  await w.query(
    `insert into $schema.consumer_reader (consumer, instance, generation, host, reads, digest, expires_at)
     values ('catalog', gen_random_uuid(), 1, 'elsewhere', '{"mail":["MailRequested"]}', 'other', clock_timestamp() + interval '1 hour')`,
  )
  w.log.append('0', [unread, published('a', 1), other(1), unread, other(2), published('a', 2), other(3)])
  const stop = w.start(w.recorder())
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => (await w.offsets())[0] === '0 7')
  await stop()
  expect(await w.effects()).toEqual(['a 1', 'a 2'])
  expect(await w.count('inbox_message', `state = 4 and unknown = 'stream' and aggregate_type = 'mail'`)).toBe(3)
  expect(await w.count('inbox_message')).toBe(3)
  expect(await w.count('dead_letter')).toBe(0)
})

test('with onUnknownStream: dead-letter a stream that nobody reads is a dead letter in its turn', async () => {
  const w = await logFixture(db)
  const other = { ...message({ stream: mails, type: 'MailRequested', id: 'm', version: 1 }, { to: 'x' }), topic: videos.topic }
  w.log.append('0', [other, published('a', 1)])
  const stop = w.start(w.recorder({ onUnknownStream: 'dead-letter' }))
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => (await w.offsets())[0] === '0 2')
  await stop()
  expect(await w.effects()).toEqual(['a 1'])
  expect(await w.count('dead_letter', `reason = 'unknown_stream'`)).toBe(1)
})

test('deltas, projections and facts do without an inbox as well', async () => {
  const w = await logFixture(db)
  const consumer = w
    .consumer({ streams: [videos, accounts], transport: w.log, offsets: 'postgres', inbox: false, positions: 'needed' })
    .project(videos, { table: `${w.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
    .on(accounts.Deposited, async (event, { tx }) => {
      await tx.query(
        `insert into ${w.schema}.balance values ($1, $2) on conflict (account_id) do update set balance = balance.balance + excluded.balance`,
        [event.aggregateId, event.data.amount],
      )
    })
  const stop = w.start(consumer)
  await eventually(() => w.log.members.length === 2)
  const [third, first] = [deposited('x', 3, 100), deposited('x', 1, 1)]
  w.log.append('0', [published('a', 1), published('a', 2), published('a', 1)])
  const of = (topic: string): (typeof w.log.members)[number] | undefined =>
    w.log.members.find(({ options }) => options.topic === topic)
  await w.log.assign(of(videos.topic), ['0'])
  w.log.append('9', [first, third, first, deposited('x', 2, 10), third, deposited('x', 4, 1_000)])
  await w.log.assign(of(accounts.topic), ['9'])
  await eventually(async () => (await w.offsets()).join() === '0 3,9 6')
  await stop()
  expect(await w.query('select balance::int from $schema.balance')).toEqual([{ balance: 1_111 }])
  expect(await w.query('select title, version::int from $schema.video_view')).toEqual([{ title: 'a 2', version: 2 }])
})

test('stored mode refuses offsets of its own', async () => {
  const w = await logFixture(db)
  expect(() => w.recorder({ mode: 'stored' })).toThrow(/offsets: 'postgres' is for mode: 'direct'/)
})

test.for([1, 2, 3])(
  'partitions that change hands at any moment, told or not, and handlers that fail: each effect once and in order (seed %i)',
  async (seed) => {
    const w = await logFixture(db)
    const random = seededRandom(seed)
    const pick = (most: number): number => randomInt(random, 0, most - 1)
    const partitions = ['0', '1', '2', '3']
    const expected = new Map<string, string[]>()
    const consumers = [0, 1, 2].map(() =>
      w.recorder({ batchSize: 7, concurrency: 2, maxAttempts: 1_000, lockTimeoutMs: 50 }, () => {
        if (pick(30) === 0) throw new Error('now and then')
      }),
    )
    const stop = w.start(...consumers)
    await eventually(() => w.log.members.length === 3)
    for (let round = 0; round < 60; round += 1) {
      const partition = partitions[pick(4)] ?? '0'
      const messages = Array.from({ length: 1 + pick(10) }, () => {
        const id = `p${partition}-${pick(5)}`
        const names = expected.get(id) ?? []
        expected.set(id, [...names, `${id} ${names.length + 1}`])
        return published(id, names.length + 1)
      })
      w.log.append(partition, pick(4) === 0 ? [...messages, ...messages.slice(0, 1)] : messages, { hole: pick(2) })
      if (pick(2) === 0) await w.log.assign(w.log.members[pick(3)], [partition], { tell: pick(2) === 0 })
    }
    await w.log.assign(w.log.members[0], partitions)
    await eventually(async () => (await w.offsets()).join() === partitions.map((p) => `${p} ${w.log.end(p)}`).join(), {
      timeoutMs: 60_000,
    })
    await stop()
    const effects = await w.effects()
    for (const [id, names] of expected) expect(effects.filter((name) => name.startsWith(`${id} `))).toEqual(names)
    expect(effects.length).toBe([...expected.values()].flat().length)
    // A mark that outlived its attempt would pass for the death of a process, and bury the next copy of its event.
    expect(await w.count('delivery_attempt')).toBe(0)
    expect(await w.count('dead_letter')).toBe(0)
  },
)
