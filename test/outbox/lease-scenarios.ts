/** Relays whose leases end while they hold something: what they may still do. As scenarios.ts, but with clocks and engines. */
import { systemClock, type Clock } from '../../src/core/service/clock.ts'
import { defaults } from '../../src/core/defaults.ts'
import { dropParked } from '../../src/outbox/operate/parked.ts'
import { createRelayEngine } from '../../src/outbox/relay/engine.ts'
import { resolveRelayOptions } from '../../src/outbox/relay/relay-options.ts'
import type { relayPass } from '../../src/outbox/relay/pass.ts'
import { relaySteps, type RelaySteps } from '../../src/outbox/relay/steps.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createFakeClock } from '../../src/testing/kit/fake-clock.ts'
import type { Publisher } from '../../src/transport/port/transport.ts'
import { expireLeases } from './relay-by-hand.ts'
import { gate, openWorld } from './world.ts'

/** Leases are renewed, pauses are read, and the backlog is counted. */
const loopsBesideThePass = 3

/** A relay is frozen beyond its lease with what it has read; meanwhile another parks it, and an operator drops it. */
export async function droppedBehindFrozen(db: Database, newPass?: typeof relayPass): Promise<string[]> {
  const world = await openWorld(db)
  await world.publish('a', 'one', 'two')
  const { eventId } = await world.row('a 1')
  let frozenMs = 0
  const read: RelaySteps['read'] = async (context, request) => {
    const found = await relaySteps.read(context, request)
    frozenMs = 600_000
    await expireLeases(world)
    world.refuse('a 1')
    const other = world.relay({ maxAttempts: 1 })
    await other.drain()
    world.refuse()
    await dropParked({ db, outbox: world.outbox, filter: { eventId }, actor: 'test', leaseMs: 0, publishTimeoutMs: 0 })
    await other.drain()
    return found
  }
  const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + frozenMs }
  await world.relay({ clock, steps: { read }, ...(newPass === undefined ? {} : { newPass }) }).pass()
  return await world.found(new Set([eventId]))
}

/** The broker, whatever the signal of the call says, or a read is not answered until the batch has taken longer than any may. */
export async function batchHangs(
  db: Database,
  at: 'read' | 'publish',
  newEngine: typeof createRelayEngine = createRelayEngine,
): Promise<string[]> {
  const world = await openWorld(db)
  const clock = createFakeClock()
  let resting = 0
  /** Not every sleeper rests: whoever waits for an answer of the database sleeps as well. */
  const sleep: Clock['sleep'] = async (ms, signal) => {
    const isRest = ms === defaults.relay.renewMs
    if (isRest) resting += 1
    await clock.sleep(ms, signal)
    if (isRest) resting -= 1
  }
  const [reached, released, stop] = [gate(), gate(), new AbortController()]
  const transport: Publisher = {
    maxBytes: 1_000_000,
    publish: async (messages) => {
      reached.open()
      await released.passed
      return messages.map(() => ({ status: 'not-sent' }))
    },
  }
  const settings = resolveRelayOptions({
    db,
    outbox: world.outbox,
    transport,
    clock: { ...clock, sleep },
    signals: world.signals,
  })
  const read: RelaySteps['read'] = async (context, request) => {
    if (at === 'publish') return await relaySteps.read(context, request)
    reached.open()
    await released.passed
    return []
  }
  const engine = newEngine(settings, { steps: { ...relaySteps, read } })
  /** The loops beside the pass have done what they had to. */
  const isResting = (): boolean => resting === loopsBesideThePass
  const leaseEnd = async (): Promise<string> =>
    JSON.stringify((await db.query(`select lock_expires_at::text from ${world.outbox.tables.lane.quoted}`)).rows)
  await world.publish('a', 'one')
  const draining = engine.drain({ stopping: stop.signal, aborting: new AbortController().signal })
  await reached.passed
  await eventually(isResting)
  await clock.advance(defaults.relay.batchTimeoutMs + 1)
  await eventually(isResting)
  const before = await leaseEnd()
  await clock.advance(settings.renewMs)
  await eventually(isResting)
  const isKept = (await leaseEnd()) !== before
  stop.abort()
  released.open()
  await draining
  await engine.leave()
  return isKept ? ['keeps the lanes of a batch that hangs'] : []
}
