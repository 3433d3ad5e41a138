import { expect, test } from 'vitest'
import { accounts, firstOccurrences, outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { run } from '../../core/service/lifetime.ts'
import { randomInt, seededRandom } from '../../core/service/random.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { redriveParked, skipParked } from './parked.ts'
import { pauseOutbox, resumeOutbox } from './pause.ts'
import { createOutboxRetention } from './retention.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const actor = 'ada'

test('operators who redrive, skip, pause and resume while relays work lose nothing, reorder nothing and leave nothing stuck', async () => {
  const { outbox, relay, dispatch, signals } = await outboxFixture(db)
  const random = seededRandom(7)
  const ids = Array.from({ length: 8 }, (_, i) => `a${i}`)
  let healed = false
  // The broker refuses one message in six, for as long as it is not healed; a void it always takes.
  const broker = memory({ rejects: ({ body }) => !healed && body.byteLength > 0 && randomInt(random, 0, 5) === 0 })
  const stop = new AbortController()
  const relays = ['r1', 'r2', 'r3'].map((name) =>
    relay(broker, { name, maxAttempts: 1, busyMs: 1, idleMs: 5, leaseMs: 300, renewMs: 40 }),
  )
  const running = run([...relays, createOutboxRetention({ db, outbox, signals, eventsMs: 0, receiptsMs: 0, idleMs: 20 })], {
    signal: stop.signal,
    signals,
  })
  const acts = { skipped: 0, redriven: 0, paused: 0, resumed: 0 }
  const isEnough = (): boolean => Object.values(acts).every((count) => count >= 5)
  const written = new Map<string, number>()
  const writing = Promise.all(
    ids.map(async (id) => {
      for (let amount = 1; amount <= 40 || !isEnough(); amount += 1) {
        await transaction(db, (tx) => outbox.add(tx, accounts.Deposited, id, { amount }))
        written.set(id, amount)
      }
    }),
  )
  const all = { db, outbox, actor, filter: { all: true } } as const
  const aggregate = (): { aggregateType: string; aggregateId: string } => ({
    aggregateType: 'account',
    aggregateId: ids[randomInt(random, 0, ids.length - 1)] ?? '',
  })
  while (!isEnough()) {
    const choice = randomInt(random, 0, 3)
    if (choice === 0) acts.skipped += (await skipParked({ ...all, filter: aggregate() })).events.length
    if (choice === 1) acts.redriven += (await redriveParked(all)).events.length
    if (choice === 2) acts.paused += (await pauseOutbox({ db, outbox, actor, ...aggregate() })) ? 1 : 0
    if (choice === 3) acts.resumed += (await resumeOutbox({ db, outbox, actor, ...aggregate() })) === undefined ? 0 : 1
  }
  await writing
  healed = true
  for (const aggregateId of ids) await resumeOutbox({ db, outbox, actor, aggregateType: 'account', aggregateId })
  await eventually(async () => {
    await redriveParked(all)
    expect(await dispatch()).toEqual([])
  })
  stop.abort()
  await running
  for (const id of ids)
    expect(firstOccurrences(broker, id)).toEqual(Array.from({ length: written.get(id) ?? 0 }, (_, i) => i + 1))
})
