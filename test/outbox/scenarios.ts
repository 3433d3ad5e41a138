/**
 * Interleavings that have broken an outbox relay somewhere, each played step by step. A scenario returns what it violated:
 * nothing with the real relay, something with the mutant that breaks the rule it is about.
 */
import { relaySteps, type RelaySteps } from '../../src/outbox/relay/steps.ts'
import { acquireLanes } from '../../src/postgres/lanes/lanes.sql.ts'
import { rows, type Database } from '../../src/postgres/query/database.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import type { Publisher } from '../../src/transport/port/transport.ts'
import { outboxFixture, videos } from '../setup/outbox-fixture.ts'
import { naiveRelay } from './mutants/naive-relay.ts'
import type { Mutant } from './mutants/mutant.ts'
import { expireLeases, retryNow } from './relay-by-hand.ts'
import { gate, opened, openWorld, operate, untilBlocked, type World } from './world.ts'

const later = 600_000

/** A head has failed; an event of its key commits afterwards. */
export async function commitBehindHead(db: Database, mutant?: Mutant): Promise<string[]> {
  const world = await openWorld(db, mutant)
  const relay = world.relay({ backoffMs: later })
  world.refuse('a 1')
  await world.publish('a', 'one')
  await relay.drain()
  await world.publish('a', 'two')
  await relay.drain()
  world.refuse()
  await retryNow(world)
  await relay.drain()
  return await world.found()
}

/** Between two looks at the outbox, another relay takes the lane over and fails the head; then the next event commits. */
export async function headFailsDuringRead(
  db: Database,
  reading: (between: () => Promise<void>) => Mutant = readThen,
): Promise<string[]> {
  const between = async (): Promise<void> => {
    await expireLeases(world)
    world.refuse('a 1')
    await world.relay({ steps: { read: relaySteps.read }, backoffMs: later }).pass()
    world.refuse()
    await world.publish('a', 'three')
  }
  const world = await openWorld(db, reading(between))
  const slow = world.relay()
  await slow.leases.rebalance()
  await world.publish('a', 'one', 'two')
  await slow.pass()
  await expireLeases(world)
  await retryNow(world)
  await world.relay({ steps: { read: relaySteps.read } }).drain()
  return await world.found()
}

function readThen(between: () => Promise<void>): Mutant {
  const read: RelaySteps['read'] = async (context, request) => {
    const found = await relaySteps.read(context, request)
    await between()
    return found
  }
  return { steps: { read } }
}

/** While a relay waits to hold a row behind a parked head, an operator removes that head. */
export async function headGoesDuringHold(db: Database, mutant?: Mutant): Promise<string[]> {
  const world = await openWorld(db, mutant)
  const relay = world.relay({ maxAttempts: 1 })
  world.refuse('a 1')
  await world.publish('a', 'one')
  await relay.drain()
  await world.publish('a', 'two')
  const head = await world.row('a 1')
  const operator = await opened(db, (tx) => operate(tx, world, { confirmed: [{ ...head, messageId: null }] }))
  const passing = relay.pass()
  await untilBlocked(db, passing)
  await operator.commit()
  await passing
  await relay.drain()
  return await world.found(new Set([head.eventId]))
}

/** A head fails, others are held behind it, it recovers. */
export async function headRecovers(db: Database, mutant?: Mutant): Promise<string[]> {
  const world = await openWorld(db, mutant)
  const relay = world.relay({ backoffMs: later })
  world.refuse('a 1')
  await world.publish('a', 'one', 'two', 'three', 'four')
  await relay.drain()
  world.refuse()
  await retryNow(world)
  await relay.drain()
  await world.publish('a', 'five')
  await relay.drain()
  return await world.found()
}

/** A transaction with a lower number commits while those around it are being confirmed. */
export async function commitDuringConfirm(db: Database, mutant: Mutant = {}): Promise<string[]> {
  const world = await openWorld(db, mutant)
  await world.publish('a', 'one')
  const slow = await opened(db, (tx) => world.outbox.add(tx, videos.VideoPublished, 'b', { title: 'one' }))
  await world.publish('c', 'one')
  const confirm: RelaySteps['confirm'] = async (context, work) => {
    await slow.commit()
    return await (mutant.steps?.confirm ?? relaySteps.confirm)(context, work)
  }
  await world.relay({ steps: { confirm } }).pass()
  await world.relay().drain()
  await expireLeases(world)
  await world.relay().drain()
  return await world.found()
}

/** Between publishing and confirming, a restore sets the sequence back: lane and number name another event now. */
export async function sequenceFallsBack(db: Database, mutant: Mutant = {}): Promise<string[]> {
  const world = await openWorld(db, mutant)
  const { dispatch } = world.outbox.tables
  await world.publish('a', 'one')
  const { seq } = await world.row('a 1')
  const confirm: RelaySteps['confirm'] = async (context, work) => {
    await db.query(`delete from ${dispatch.quoted}`)
    await db.query(`alter table ${dispatch.quoted} alter column seq restart with ${seq}`)
    await world.publish('b', 'one')
    return await (mutant.steps?.confirm ?? relaySteps.confirm)(context, work)
  }
  await world.relay({ steps: { confirm } }).pass()
  await expireLeases(world)
  await world.relay().drain()
  return await world.found()
}

/** The first of a run is refused; the others of its key would be accepted. */
export async function failureInsideRun(db: Database, mutant?: Mutant): Promise<string[]> {
  const world = await openWorld(db, mutant)
  const relay = world.relay({ backoffMs: later })
  world.refuse('a 1')
  await world.publish('a', 'one', 'two', 'three')
  await relay.pass()
  world.refuse()
  await retryNow(world)
  await relay.drain()
  return await world.found()
}

/** Two transactions add to one aggregate; the second begins before the first commits. */
export async function writersMeet(db: Database, mutant?: Mutant): Promise<string[]> {
  const world = await openWorld(db, mutant)
  const first = await opened(db, (tx) => world.outbox.add(tx, videos.VideoPublished, 'a', { title: 'one' }))
  const second = world.publish('a', 'two')
  await untilBlocked(db, second)
  await first.commit()
  await second
  await world.relay().drain()
  return await world.found()
}

/** A writer is held up on its way to the aggregate's lock, where a mutant has its place in line already. */
export async function writerOvertaken(db: Database, mutant?: Mutant): Promise<string[]> {
  const world = await openWorld(db, mutant)
  const guard = await opened(db, (tx) => tx.query('select pg_advisory_xact_lock(20250101)'))
  const slow = transaction(db, async (tx) => {
    await tx.query(`select set_config('waybill_test.gate', 'shut', true)`)
    await world.outbox.add(tx, videos.VideoPublished, 'a', { title: 'slow' })
  })
  await untilBlocked(db, slow)
  await world.publish('a', 'fast')
  await guard.commit()
  await slow
  await world.relay().drain()
  return await world.found()
}

/** A lane changes hands while its old owner confirms. */
export async function laneTakenDuringConfirm(db: Database, mutant: Mutant = {}): Promise<string[]> {
  const world = await openWorld(db, mutant)
  await world.publish('a', 'one')
  const confirm: RelaySteps['confirm'] = async (context, work) => {
    const taker = await opened(db, (tx) =>
      tx.query(`update ${world.outbox.tables.lane.quoted} set lock_token = gen_random_uuid()`),
    )
    const confirming = (mutant.steps?.confirm ?? relaySteps.confirm)(context, work)
    await untilBlocked(db, confirming)
    await taker.commit()
    return await confirming
  }
  await world.relay({ steps: { confirm } }).pass()
  return (await world.dispatch()).length === 1 ? [] : ['wrote into a lane that was no longer its own']
}

/** A relay that was thought dead learns that its event was refused, when another has just published it. */
export async function lateRefusal(db: Database, mutant?: Mutant): Promise<string[]> {
  const world = await openWorld(db, mutant)
  const [reached, refused] = [gate(), gate()]
  const zombie = world.relay({
    maxAttempts: 1,
    publisher: {
      maxBytes: 1_000_000,
      publish: async (messages) => {
        reached.open()
        await refused.passed
        return messages.map((_, index) =>
          index === 0 ? { status: 'rejected', error: new Error('refused, late') } : { status: 'not-sent' },
        )
      },
    },
  })
  await world.publish('a', 'one', 'two')
  const zombiePass = zombie.pass()
  await reached.passed
  await expireLeases(world)
  const publisher: Publisher = {
    maxBytes: 1_000_000,
    publish: async (messages, options) => {
      const outcomes = await world.broker.publish(messages, options)
      refused.open()
      await zombiePass
      return outcomes
    },
  }
  await world.relay({ publisher }).drain()
  return await world.found()
}

/** A transaction with a lower number commits after a relay has seen a higher one. */
export async function commitBelowWhatWasSeen(db: Database, mutant?: Mutant): Promise<string[]> {
  const world = await openWorld(db, mutant)
  const relay = world.relay()
  const slow = await opened(db, (tx) => world.outbox.add(tx, videos.VideoPublished, 'a', { title: 'one' }))
  await world.publish('b', 'one')
  await relay.drain()
  await slow.commit()
  await relay.drain()
  return await world.found()
}

/** Two relays work at once, and the first is slow to publish what it has taken. */
export async function twoRelaysAtOnce(db: Database, options: { readonly naive?: boolean } = {}): Promise<string[]> {
  const world = await openWorld(db)
  const relay = (publisher: Publisher): { pass(): Promise<'more' | 'idle'> } =>
    options.naive === true ? naiveRelay(world, publisher, 1) : world.relay({ publisher })
  const [reached, released] = [gate(), gate()]
  await world.publish('a', 'one', 'two')
  const slow = relay({
    maxBytes: 1_000_000,
    publish: async (messages, publishOptions) => {
      reached.open()
      await released.passed
      return await world.broker.publish(messages, publishOptions)
    },
  })
  const slowPass = slow.pass()
  await reached.passed
  await relay(world.broker).pass()
  released.open()
  await slowPass
  return await world.found()
}

/** An event's row was deleted before it was published. */
export async function eventDeleted(db: Database, mutant?: Mutant): Promise<string[]> {
  const world = await openWorld(db, mutant)
  await world.publish('a', 'one', 'two')
  await db.query(`delete from ${world.outbox.tables.outbox.quoted} where version = 1`)
  const missing: string[] = []
  world.signals.on('relay.event-missing', ({ eventId }) => missing.push(eventId))
  await world.relay().drain()
  return [
    ...(world.broker.publishedCount === 0 ? [] : ['published what stands behind a missing event']),
    ...(missing.length === 1 ? [] : ['did not report the missing event']),
    ...(await parkedAlone(world)),
  ]
}

async function parkedAlone({ dispatch }: World): Promise<string[]> {
  const states = (await dispatch()).map((row) => row['state'])
  return states.join() === '3,2' ? [] : [`states are ${states.join()}`]
}

/** Claims for five lanes, with the planner pushed to plans that break a careless one. Which it takes depends on its version. */
export async function claimOfFive(db: Database, claim: typeof acquireLanes = acquireLanes): Promise<string[]> {
  const joins = ['hashjoin', 'mergejoin', 'material', 'hashagg', 'sort', 'memoize']
  const found: string[] = []
  for (const features of [joins, [...joins, 'bitmapscan', 'indexscan', 'indexonlyscan'], [...joins, 'seqscan']]) {
    const { outbox } = await outboxFixture(db)
    const claimed = await transaction(db, async (tx) => {
      for (const feature of features) await tx.query(`set local enable_${feature} = off`)
      return await rows(tx, claim(outbox.tables, { worker: 'w', token: crypto.randomUUID(), leaseMs: 5_000, count: 5 }))
    })
    if (claimed.length !== 5) found.push(`claimed ${claimed.length} lanes instead of 5`)
  }
  return found
}
