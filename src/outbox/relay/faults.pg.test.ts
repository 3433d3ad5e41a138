import { describe, expect, test } from 'vitest'
import { expireLeases } from '../../../test/outbox/relay-by-hand.ts'
import { opened, openWorld } from '../../../test/outbox/world.ts'
import { firstOccurrences, log, outboxFixture, videos } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { WaybillError } from '../../core/errors.ts'
import { run } from '../../core/service/lifetime.ts'
import type { SignalName } from '../../core/signals.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { relaySteps, type RelaySteps } from './steps.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Runs relays until the work is done. */
async function whileRunning(relays: Parameters<typeof run>[0], work: () => Promise<void>): Promise<void> {
  const stop = new AbortController()
  const running = run(relays, { signal: stop.signal })
  try {
    await work()
  } finally {
    stop.abort()
    await running
  }
}

test('ten thousand events wait out an outage: all arrive in order, none was charged, none parked', async () => {
  const fixture = await outboxFixture(db)
  const broker = memory()
  const heard: SignalName[] = []
  fixture.signals.onAny((_, name) => void heard.push(name))
  const ids = Array.from({ length: 100 }, (_, nth) => `v${nth}`)
  broker.setOutage('refuse')
  await fixture.fill(ids, 100)
  await whileRunning([fixture.relay(broker, { maxAttempts: 1 })], async () => {
    await eventually(() => heard.filter((name) => name === 'relay.breaker').length >= 5)
    expect(broker.publishedCount).toBe(0)
    broker.setOutage('none')
    await eventually(async () => expect(await fixture.dispatch()).toEqual([]), { intervalMs: 100 })
  })
  for (const id of ids) expect(firstOccurrences(broker, id)).toEqual(Array.from({ length: 100 }, (_, nth) => nth + 1))
  const { rows } = await db.query(
    `select attempts, count(*)::int as events from ${fixture.outbox.tables.receipt.quoted} group by 1`,
  )
  expect(rows).toEqual([{ attempts: 1, events: 10_000 }])
  expect(heard).not.toContain('relay.parked')
  expect(heard).not.toContain('relay.stopped')
})

test.each(['hang', 'lie'] as const)('a broker that %ss costs duplicates at most, no attempts', async (outage) => {
  const fixture = await outboxFixture(db)
  const broker = memory()
  broker.setOutage(outage)
  await fixture.fill(['a', 'b'], 3)
  const once = fixture.relay(broker, { maxAttempts: 1, publishTimeoutMs: 50 }).once()
  await expect(once).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  expect((await fixture.dispatch()).every((row) => row['state'] === 0 && row['publish_attempts'] === 0)).toBe(true)
  broker.setOutage('none')
  await fixture.relay(broker).once()
  for (const id of ['a', 'b']) expect(firstOccurrences(broker, id)).toEqual([1, 2, 3])
  expect(await fixture.dispatch()).toEqual([])
})

test('a relay that cannot publish gives its lanes up, and takes them again when the broker is back', async () => {
  const fixture = await outboxFixture(db)
  const broker = memory()
  broker.setOutage('refuse')
  await fixture.publish('v1', 'one')
  const leased = async (): Promise<number> => {
    const { rows } = await db.query(`select count(lock_token)::int as lanes from ${fixture.outbox.tables.lane.quoted}`)
    return (rows[0] as { lanes: number }).lanes
  }
  let released = 0
  fixture.signals.on('lanes.released', () => void (released += 1))
  await whileRunning([fixture.relay(broker, { leaseMs: 100, renewMs: 30 })], async () => {
    await eventually(async () => expect([released > 0, await leased()]).toEqual([true, 0]))
    broker.setOutage('none')
    await eventually(() => expect(log(broker)).toEqual(['v1 1']))
  })
})

test('an error text that Postgres cannot store is cleaned; the pass goes on', async () => {
  const world = await openWorld(db)
  await world.publish('a', 'one')
  await world.publish('b', 'one')
  const text = `\u0000nul \ud800 "quoted\\" {array} ${'x'.repeat(5_000)}`
  const publisher = {
    maxBytes: 1_000,
    publish: (messages: readonly unknown[]) =>
      Promise.resolve(
        messages.map((_, index) =>
          index === 0
            ? ({ status: 'rejected', error: new Error(text) } as const)
            : ({ status: 'confirmed', messageId: '\u0000m' } as const),
        ),
      ),
  }
  await world.relay({ publisher, backoffMs: 600_000 }).drain()
  const [row, ...others] = await world.dispatch()
  expect(others).toEqual([])
  expect(row).toMatchObject({
    state: 1,
    publish_attempts: 1,
    last_error: expect.stringMatching(/^nul \ufffd "quoted\\" \{array\} x+$/),
  })
  expect(String(row?.['last_error'])).toHaveLength(2_000)
})

describe('what the database refuses to settle as a whole', () => {
  const refused = Object.assign(new Error('invalid byte sequence'), { code: '22021' })
  const rowsOf = ({ settlement }: Parameters<RelaySteps['settle']>[1]): number =>
    settlement.confirmed.length + settlement.stopped.length

  test('is settled row by row, with a text that cannot be at fault', async () => {
    const world = await openWorld(db)
    world.refuse('a 2', 'b 1')
    await world.publish('a', 'one', 'two', 'three')
    await world.publish('b', 'one')
    const settle: RelaySteps['settle'] = async (context, work) => {
      if (rowsOf(work) > 1) throw refused
      return await relaySteps.settle(context, work)
    }
    await world.relay({ steps: { settle }, backoffMs: 600_000 }).pass()
    expect(log(world.broker)).toEqual(['a 1'])
    expect((await world.dispatch()).map((row) => [row['state'], row['publish_attempts'], row['last_error']])).toEqual([
      [1, 1, 'could not be recorded: invalid byte sequence'],
      [2, 0, null],
      [1, 1, 'could not be recorded: invalid byte sequence'],
    ])
  })

  test('does not keep the others from being settled if one row is refused for ever', async () => {
    const world = await openWorld(db)
    world.refuse('a 1', 'b 1', 'c 1')
    for (const id of ['a', 'b', 'c']) await world.publish(id, 'one')
    const { eventId } = await world.row('b 1')
    const settle: RelaySteps['settle'] = async (context, work) => {
      if (work.settlement.stopped.some((row) => row.eventId === eventId)) throw refused
      return await relaySteps.settle(context, work)
    }
    await expect(world.relay({ steps: { settle }, backoffMs: 600_000 }).pass()).rejects.toThrow('invalid byte sequence')
    expect((await world.dispatch()).map((row) => row['state'])).toEqual([1, 0, 1])
  })

  test('is not tried row by row when the connection is gone', async () => {
    const world = await openWorld(db)
    world.refuse('a 1', 'b 1', 'c 1')
    for (const id of ['a', 'b', 'c']) await world.publish(id, 'one')
    let calls = 0
    const settle: RelaySteps['settle'] = () => {
      calls += 1
      return Promise.reject(Object.assign(new Error('Connection terminated unexpectedly'), { code: undefined }))
    }
    await expect(world.relay({ steps: { settle } }).pass()).rejects.toThrow('Connection terminated')
    expect(calls).toBe(1)
  })
})

test.each(['confirm', 'settle'] as const)('an answer lost after a %s took effect costs nothing', async (step) => {
  const world = await openWorld(db)
  if (step === 'settle') world.refuse('a 2')
  await world.publish('a', 'one', 'two', 'three')
  let lost = false
  const losing =
    <Context, Work>(real: (context: Context, work: Work) => Promise<readonly number[]>) =>
    async (context: Context, work: Work): Promise<readonly number[]> => {
      const result = await real(context, work)
      if (lost) return result
      lost = true
      throw new WaybillError('UNAVAILABLE', 'The connection broke before the answer came.')
    }
  const steps = step === 'confirm' ? { confirm: losing(relaySteps.confirm) } : { settle: losing(relaySteps.settle) }
  const relay = world.relay({ steps })
  await expect(relay.pass()).rejects.toThrow('The connection broke')
  world.refuse()
  await relay.drain()
  expect(log(world.broker)).toEqual(['a 1', 'a 2', 'a 3'])
  expect(await world.found()).toEqual([])
})

test('a relay that lost its lanes without noticing publishes duplicates at most, and writes nothing', async () => {
  const world = await openWorld(db)
  const owner = world.relay()
  const read: RelaySteps['read'] = async (context, request) => {
    const found = await relaySteps.read(context, request)
    await expireLeases(world)
    await owner.leases.rebalance()
    return found
  }
  await world.publish('a', 'one', 'two')
  const zombie = world.relay({ steps: { read } })
  await zombie.pass()
  expect(log(world.broker)).toEqual(['a 1', 'a 2'])
  expect(await world.dispatch()).toHaveLength(2)
  expect(zombie.leases.held()).toEqual([])
  await owner.drain()
  expect(await world.found()).toEqual([])
})

test('while a transaction sits on the row of one lane, all other lanes are served', async () => {
  const fixture = await outboxFixture(db)
  const { lane } = fixture.outbox.tables
  const broker = memory()
  const ids = Array.from({ length: 40 }, (_, nth) => `v${nth}`)
  await fixture.fill(ids, 1)
  const { rows } = await db.query(
    `select lane, count(*)::int as events from ${fixture.outbox.tables.dispatch.quoted} group by 1 order by 1 limit 1`,
  )
  const [stuck] = rows as { lane: number; events: number }[]
  const sitting = await opened(db, (tx) => tx.query(`select from ${lane.quoted} where lane = $1 for update`, [stuck?.lane ?? 0]))
  await whileRunning([fixture.relay(broker, { leaseMs: 400, renewMs: 100 })], async () => {
    await eventually(async () => expect(await fixture.dispatch()).toHaveLength(stuck?.events ?? 0))
    await fixture.publish('later', 'one')
    await eventually(() => expect(log(broker)).toContain('later 1'))
    await sitting.commit()
    await eventually(async () => expect(await fixture.dispatch()).toEqual([]))
  })
  for (const id of ids) expect(firstOccurrences(broker, id)).toEqual([1])
})

test('a lane that is locked after it was taken costs the others one lease, no more', async () => {
  const fixture = await outboxFixture(db)
  const { lane } = fixture.outbox.tables
  const broker = memory()
  const lost: number[] = []
  fixture.signals.on('lanes.lost', ({ lanes }) => lost.push(...lanes))
  await whileRunning([fixture.relay(broker, { leaseMs: 400, renewMs: 100 })], async () => {
    await fixture.publish('first', 'one')
    await eventually(() => expect(log(broker)).toContain('first 1'))
    const sitting = await opened(db, (tx) => tx.query(`select from ${lane.quoted} where lane = 0 for update`))
    await eventually(() => expect(lost).toContain(0))
    for (let nth = 0; nth < 5; nth += 1) await fixture.publish(`v${nth}`, 'one')
    const { rows } = await db.query(`select count(*)::int as rows from ${fixture.outbox.tables.dispatch.quoted} where lane = 0`)
    const stuck = (rows[0] as { rows: number }).rows
    await eventually(async () => expect((await fixture.dispatch()).length).toBeLessThanOrEqual(stuck))
    await sitting.commit()
    await eventually(async () => expect(await fixture.dispatch()).toEqual([]))
  })
})

test('headers of any JSON, written by SQL, do not stop the relay', async () => {
  const fixture = await outboxFixture(db)
  const { schema } = fixture.outbox.tables
  const broker = memory({ nasty: { lieOnPublish: 0.01 } })
  for (const headers of ['{"n": 3}', '[1]', '"text"', 'null']) {
    await db.query(
      `select ${schema}.add_event('video.events', 'video', 'v1', 'VideoPublished', convert_to('{}', 'UTF8'), headers => $1::text::jsonb)`,
      [headers],
    )
  }
  await fixture.relay(broker).once()
  expect(firstOccurrences(broker, 'v1')).toEqual([1, 2, 3, 4])
})

test('a relay reads what is paused before it publishes anything', async () => {
  const fixture = await outboxFixture(db)
  const { pause, read } = fixture.outbox.tables
  const order: string[] = []
  const watched: typeof db = {
    ...db,
    query: async (text, values) => {
      if (text.includes(read.quoted)) order.push('read')
      // Slower than everything else that a relay asks when it starts.
      if (text.includes(pause.quoted)) await db.query('select pg_sleep(0.3)')
      const result = await db.query(text, values)
      if (text.includes(pause.quoted)) order.push('paused')
      return result
    },
  }
  await db.query(`insert into ${pause.quoted} (aggregate_type, reason, paused_by) values ('video', 'test', 'test')`)
  await fixture.publish('v1', 'one')
  const broker = memory()
  await whileRunning([fixture.relay(broker, { db: watched })], async () => {
    await eventually(async () => expect((await fixture.dispatch()).map((row) => row['state'])).toEqual([1]))
  })
  expect(order).toContain('read')
  expect(order[0]).toBe('paused')
  expect(broker.publishedCount).toBe(0)
})

test('after the clock stepped back, retries that lie beyond any back-off are due again; dates that were asked for stand', async () => {
  const fixture = await outboxFixture(db)
  const { outbox } = fixture
  const broker = memory()
  await fixture.publish('a', 'one', 'two')
  const tomorrow = new Date(Date.now() + 86_400_000)
  await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'b', { title: 'one' }, { notBefore: tomorrow }))
  broker.setRejects(() => true)
  const options = { backoff: { firstMs: 60_000, maxMs: 60_000 } }
  await fixture.relay(broker, options).once()
  broker.setRejects(() => false)
  await db.query(
    `update ${outbox.tables.dispatch.quoted} set next_retry_at = next_retry_at + interval '1 hour' where state = 1 and publish_attempts > 0`,
  )
  await whileRunning([fixture.relay(broker, options)], async () => {
    await eventually(() => expect(log(broker)).toEqual(['a 1', 'a 2']))
  })
  expect(await fixture.states()).toMatchObject({ 'b 1': 'RELEASED' })
  expect((await fixture.dispatch()).map((row) => row['last_error'])).toEqual(['waits for its date'])
})
