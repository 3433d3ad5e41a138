import { expect, onTestFinished, test } from 'vitest'
import { outboxFixture, type OutboxFixture } from '../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import type { Database } from '../postgres/database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { eventually } from '../testing/eventually.ts'
import { createFakeClock, type FakeClock } from '../testing/fake-clock.ts'
import { memory } from '../transport/memory.ts'
import type { Relay } from './relay.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** The pass, and the three loops beside it. */
const loops = 4

interface World {
  readonly fixture: OutboxFixture
  readonly clock: FakeClock
  readonly relay: Relay
  /** Lets so much time go by, in small steps, each until everybody rests again. */
  pass(ms: number): Promise<void>
}

/** A relay that runs while its broker is out of reach. */
async function outageOf(): Promise<World> {
  const fixture = await outboxFixture(db)
  const [broker, clock] = [memory(), createFakeClock()]
  let underWay = 0
  const query: Database['query'] = async (text, values) => {
    underWay += 1
    return await db.query(text, values).finally(() => (underWay -= 1))
  }
  const random = { next: () => 0.5, fill: (bytes: Uint8Array) => bytes }
  const relay = fixture.relay(broker, { db: { ...db, query }, clock, random })
  broker.setOutage('refuse')
  await fixture.publish('a', 'one')
  const stopping = new AbortController()
  const running = relay.run({ stopping: stopping.signal, aborting: new AbortController().signal })
  onTestFinished(async () => {
    stopping.abort()
    await running
  })
  const rest = (): Promise<true> => eventually(() => underWay === 0 && clock.sleepers() === loops, { intervalMs: 1 })
  const pass = async (ms: number): Promise<void> => {
    await rest()
    for (let passed = 0; passed < ms; passed += 500) {
      await clock.advance(500)
      await rest()
      relay.nudge()
      await rest()
    }
  }
  return { fixture, clock, relay, pass }
}

test('in an outage what waits is counted at every probe, however often commits wake the relay', async () => {
  const { fixture, clock, pass } = await outageOf()
  const agesMs: number[] = []
  let countedAt = 0
  fixture.signals.on('relay.backlog', () => void (countedAt = clock.monotonicMs()))
  fixture.signals.on('lanes.released', () => agesMs.push(clock.monotonicMs() - countedAt))
  await pass(120_000)
  expect(agesMs.length).toBeGreaterThan(3)
  expect(Math.max(...agesMs)).toBeLessThan(5_000)
})
