/** Statements of the Postgres transport that are answered late or never, while other connections work. */
import { afterEach, expect, test } from 'vitest'
import { muteOnce } from '../../../test/setup/mute-once.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import type { SqlValue } from '../../postgres/query/sql.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock, type FakeClock } from '../../testing/kit/fake-clock.ts'
import { interleaved, message, nameOf, probe, publishAll } from '../../testing/contract/probe.ts'
import type { Delivery, ReceiveOptions } from '../port/transport.ts'
import { postgresTransport, type PostgresTransport } from './postgres-transport.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'transport' })

/** A part of each statement that no other has. */
const statements = {
  lease: 'transport_lease',
  horizon: 'transport_horizon',
  fetch: 'published_at_ms',
  ack: 'as a (lane, tenure, seq)',
  nack: 'as n (lane, tenure, seq, delay_ms)',
  sweep: 'with recursive served',
}
type Kind = keyof typeof statements

interface HeldBack {
  readonly kind: Kind
  readonly at: 'question' | 'answer'
  /** By its values, or by the rows of its answer. */
  readonly isIt: (found: readonly unknown[]) => boolean
  readonly released: PromiseWithResolvers<void>
  state: 'awaited' | 'held' | 'answered'
}

/** A way to the database on which the next statement of a kind can be held back: before the database has it, or its answer. */
class Way implements Queryable {
  readonly #held: HeldBack[] = []
  readonly #asked = new Map<Kind, number>()
  readonly #answered = new Map<Kind, number>()

  asked(kind: Kind): number {
    return this.#asked.get(kind) ?? 0
  }

  answered(kind: Kind): number {
    return this.#answered.get(kind) ?? 0
  }

  hold(kind: Kind, { at = 'question', isIt = () => true }: Partial<Pick<HeldBack, 'at' | 'isIt'>> = {}): HeldBack {
    const held: HeldBack = { kind, at, isIt, released: Promise.withResolvers(), state: 'awaited' }
    this.#held.push(held)
    return held
  }

  releaseAll(): void {
    for (const { released } of this.#held) released.resolve()
  }

  async query(text: string, values: readonly SqlValue[] = []): ReturnType<Queryable['query']> {
    const kind = (Object.keys(statements) as Kind[]).find((each) => text.includes(statements[each]))
    if (kind !== undefined) this.#asked.set(kind, this.asked(kind) + 1)
    const question = await this.#pass(kind, 'question', values)
    const result = await db.query(text, values)
    const answer = await this.#pass(kind, 'answer', result.rows)
    for (const held of [question, answer]) if (held !== undefined) held.state = 'answered'
    if (kind !== undefined) this.#answered.set(kind, this.answered(kind) + 1)
    return result
  }

  async #pass(kind: Kind | undefined, at: HeldBack['at'], found: readonly unknown[]): Promise<HeldBack | undefined> {
    const held = this.#held.find((each) => each.state === 'awaited' && each.kind === kind && each.at === at && each.isIt(found))
    if (held === undefined) return undefined
    held.state = 'held'
    await held.released.promise
    return held
  }
}

const leaseMs = 60_000
const closes: (() => Promise<void>)[] = []
let topics = 0

afterEach(async () => {
  for (const close of closes.splice(0)) await close()
})

interface World {
  readonly way: Way
  readonly clock: FakeClock
  readonly transport: PostgresTransport
  readonly topic: string
  readonly deliveries: Delivery[]
  readonly errors: Error[]
  receive(on?: (delivery: Delivery) => void, bounds?: Partial<Pick<ReceiveOptions, 'maxBytes'>>): Promise<void>
  names(): readonly string[]
  /** Waits, and lets time go on meanwhile: whoever failed tries again after a while. */
  soon(check: () => boolean | void): Promise<void>
  /** Lets a lease's time go by, in which each renewal is answered. */
  passLease(): Promise<void>
}

function openWorld(lanes = 32, ownLeaseMs = leaseMs): World {
  const way = new Way()
  const clock = createFakeClock()
  const transport = postgresTransport({ db: way, leaseMs: ownLeaseMs, lanes, clock })
  closes.push(async () => {
    way.releaseAll()
    await transport.close()
  })
  const topic = `unanswered-${++topics}`
  const [deliveries, errors]: [Delivery[], Error[]] = [[], []]
  return {
    way,
    clock,
    transport,
    topic,
    deliveries,
    errors,
    receive: async (on = () => undefined, { maxBytes = 64_000_000 } = {}) => {
      const onDelivery = (delivery: Delivery): void => {
        deliveries.push(delivery)
        on(delivery)
      }
      const onError = (error: Error): void => void errors.push(error)
      await transport.receive({ topic, consumer: 'one', maxMessages: 1_000, maxBytes, onDelivery, onError })
      // The first renewal follows the first lease at once.
      await eventually(() => way.answered('lease') >= 2)
    },
    names: () => deliveries.map(nameOf),
    soon: async (check) => {
      await eventually(async () => {
        await clock.advance(100)
        return check()
      })
    },
    passLease: async () => {
      for (let third = 1; third <= 3; third += 1) {
        const before = way.answered('lease')
        await clock.advance(leaseMs / 3)
        await eventually(() => way.answered('lease') > before)
      }
    },
  }
}

const late = expect.objectContaining({ code: 'TIMEOUT' })

test.each(['transport_subscribe', 'transport_lease'])(
  'a receiver opens also when %s is not answered the first time, and tells that',
  async (statement) => {
    const mute = muteOnce(db, (text) => text.includes(statement))
    const clock = createFakeClock()
    const transport = postgresTransport({ db: mute.db, clock })
    closes.push(() => transport.close())
    const errors: Error[] = []
    const onError = (error: Error): void => void errors.push(error)
    const bounds = { maxMessages: 1, maxBytes: 1_000 }
    const topic = `unanswered-${++topics}`
    const opening = transport.receive({ topic, consumer: 'one', ...bounds, onDelivery: () => undefined, onError })
    await mute.asked
    await clock.advance(29_999)
    expect(errors).toEqual([])
    await clock.advance(1)
    expect(errors).toEqual([late])
    await opening
  },
)

test.each(['horizon', 'fetch'] as const)('a receiver goes on after a %s that is never answered', async (kind) => {
  const { way, transport, topic, errors, receive, names, soon, passLease } = openWorld()
  const held = way.hold(kind)
  // Something has to rest, or nobody asks for the horizon.
  await receive((delivery) => void (nameOf(delivery) === 'rests' ? delivery.nack(3_600_000) : delivery.ack()))
  await publishAll(transport, [message(topic, 'rests', 'a')])
  await soon(() => held.state === 'held')
  await publishAll(transport, [message(topic, 'next', 'b')])
  await passLease()
  await soon(() => expect(names()).toEqual(['rests', 'next']))
  expect(errors).toContainEqual(late)
})

test('a receiver asks again after a renewal that is never answered', async () => {
  const { way, clock, transport, topic, errors, deliveries, receive, names, soon } = openWorld()
  await receive()
  await publishAll(transport, [message(topic, 'a1', 'a')])
  await soon(() => deliveries.length === 1)
  const held = way.hold('lease')
  await clock.advance(leaseMs / 3)
  expect(held.state).toBe('held')
  await clock.advance(leaseMs)
  expect(errors).toContainEqual(late)
  expect(deliveries[0]?.lost.aborted).toBe(true)
  await soon(() => expect(names()).toEqual(['a1', 'a1']))
  expect(await deliveries[1]?.ack()).toBe('confirmed')
})

test.each(['ack', 'nack'] as const)(
  'what was settled by an %s that is never answered comes again, and later acks are stored',
  async (kind) => {
    const { way, transport, topic, errors, deliveries, receive, names, soon, passLease } = openWorld()
    await receive()
    await publishAll(transport, interleaved(topic, ['a', 'b'], 1))
    await soon(() => deliveries.length === 2)
    const held = way.hold(kind)
    const settled = deliveries[0]?.[kind]()
    await eventually(() => held.state === 'held')
    const next = deliveries[1]?.ack()
    await passLease()
    expect(await settled).toBe(kind === 'ack' ? 'unconfirmed' : undefined)
    expect(await next).toBe('confirmed')
    expect(errors).toContainEqual(late)
    await soon(() => expect(names()).toEqual(['a1', 'b1', 'a1']))
    expect(await deliveries[2]?.ack()).toBe('confirmed')
  },
)

test.each([
  ['messages', { count: 12_000, bytes: 1, maxBytes: 64_000_000, bound: 10_000 }],
  ['bytes', { count: 40, bytes: 1_000, maxBytes: 10_500, bound: 20 }],
])('what was acked and is not stored is bounded in %s', async (_what, { count, bytes, maxBytes, bound }) => {
  const { way, clock, transport, topic, deliveries, receive } = openWorld(1)
  await transport.subscribe(topic, 'one')
  const body = Buffer.alloc(bytes)
  await publishAll(
    transport,
    Array.from({ length: count }, () => ({ topic, orderingKey: undefined, attributes: {}, body })),
  )
  const held = way.hold('ack')
  await receive((delivery) => void delivery.ack(), { maxBytes })
  await eventually(() => deliveries.length >= bound)
  // Many polls, and less time than an ack is waited for.
  await clock.advance(1_000)
  expect([held.state, deliveries.length]).toEqual(['held', bound])
  expect(way.asked('fetch')).toBe(way.answered('fetch'))
  held.released.resolve()
  await eventually(() => deliveries.length === count)
})

test('a sweep that is never answered is done again, and does not keep the transport from closing', async () => {
  const { way, transport, errors, receive, soon, passLease } = openWorld()
  const held = way.hold('sweep')
  await receive()
  expect(held.state).toBe('held')
  await passLease()
  await soon(() => way.answered('sweep') === 1)
  expect(errors).toContainEqual(late)
  await transport.close()
})

test('a close waits no longer than a lease for a sweep that is not answered', async () => {
  const { way, clock, transport, receive } = openWorld(32, 1_000)
  const held = way.hold('sweep')
  await receive()
  expect(held.state).toBe('held')
  const closing = transport.close()
  await clock.advance(1_000)
  await closing
  expect(held.state).toBe('held')
})

test('a renewal that gives lanes back and lands late takes none from the receiver that has them again', async () => {
  const { way, clock, transport, topic, deliveries, receive, soon } = openWorld(2)
  await receive()
  const other = postgresTransport({ db, leaseMs })
  closes.push(() => other.close())
  const { receiver } = await probe(other, { topic })
  const held = way.hold('lease', { isIt: (values) => values.includes('{0}') || values.includes('{1}') })
  await clock.advance(leaseMs / 3)
  await eventually(() => held.state === 'held')
  await receiver.close()
  // By the database's clock as well the lease is over, and nobody has heard of its holder lately.
  await db.query('update waybill.transport_lane set lock_expires_at = clock_timestamp() where locked_by is not null')
  await db.query(`update waybill.transport_receiver set seen_at = seen_at - interval '2 minutes'`)
  await clock.advance(leaseMs)
  await publishAll(transport, interleaved(topic, ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'], 1))
  await soon(() => deliveries.length === 8)
  held.released.resolve()
  await eventually(() => held.state === 'answered')
  for (const delivery of deliveries) expect(await delivery.ack()).toBe('confirmed')
})

test('what was fetched before the lease ran out does not go before what was lost then, also under the same tenure', async () => {
  const { way, clock, transport, topic, deliveries, receive, names } = openWorld(1)
  await receive()
  await publishAll(transport, [message(topic, 'a1', 'a')])
  await eventually(() => deliveries.length === 1)
  // The look that follows the first delivery: one that is still under way would be late before the lease is.
  await eventually(() => way.asked('fetch') === way.answered('fetch'))
  const renewal = way.hold('lease', { at: 'answer' })
  await clock.advance(leaseMs / 3)
  await eventually(() => renewal.state === 'held')
  const fetch = way.hold('fetch', { at: 'answer', isIt: (rows) => rows.some((row) => (row as { seq: unknown }).seq !== null) })
  await publishAll(transport, [message(topic, 'a2', 'a')])
  await eventually(() => fetch.state === 'held')
  await clock.advance((leaseMs * 2) / 3)
  expect(deliveries[0]?.lost.aborted).toBe(true)
  renewal.released.resolve()
  await eventually(() => renewal.state === 'answered')
  fetch.released.resolve()
  await eventually(() => deliveries.length >= 3)
  expect(names()).toEqual(['a1', 'a1', 'a2'])
})
