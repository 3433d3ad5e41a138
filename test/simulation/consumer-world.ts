/**
 * Instances of one consumer on a broker that redelivers, duplicates and reorders: the real batcher, batches, turns, inbox and
 * stored processor. Instances are killed and cut off, acks get lost, handlers fail for a while, time leaps, and the database's clock
 * is set back.
 *
 * In the end each event had one effect, the effects of deltas came in the order of versions, no version ever went back, the
 * view is what the stream says, and nothing waits.
 */
import fc, { type Scheduler } from 'fast-check'
import { createProjection } from '../../src/projection/projection.ts'
import { resolveConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import { runConsumer } from '../../src/consumer/engine.ts'
import { inboxTables, type Scope } from '../../src/consumer/tables/inbox.sql.ts'
import { RouteBook } from '../../src/consumer/model/routes.ts'
import { businessKeyId } from '../../src/core/event/id.ts'
import { seededRandom } from '../../src/core/service/random.ts'
import { createSignals } from '../../src/core/signals.ts'
import { execute } from '../../src/postgres/query/database.ts'
import type { Delivery, OutgoingMessage, Transport } from '../../src/transport/port/transport.ts'
import { accounts, message, videos } from '../setup/consumer-fixture.ts'
import { Actor } from './actor.ts'
import { consumerViolations, type Expected } from './consumer-violations.ts'
import { fakeBroker, type FakeBroker } from './fake-broker.ts'
import { fakeDatabase } from './fake-database.ts'
import { faults, type Fault } from './faults.ts'
import type { Outcome } from './simulate.ts'
import { Stage } from './stage.ts'
import {
  defineEffects,
  effectStore,
  insertEffect,
  viewTable,
  type EffectStore,
  type ViewRule,
} from './store/effect-statements.ts'
import { FakeStore } from './store/fake-store.ts'
import { defineInbox } from './store/inbox-statements.ts'
import { inboxStore, type InboxRule, type InboxStore } from './store/inbox-tables.ts'
import { defineStored, defineStoring } from './store/stored-statements.ts'
import { defineTransactions } from './store/transaction-statements.ts'
import { defineAttempts, defineLeases, defineWaiting } from './store/waiting-statements.ts'

export interface ConsumerWorld {
  readonly seed: number
  readonly mode: 'direct' | 'stored'
  readonly instances: number
  readonly batchSize: number
  readonly concurrency: number
  /** Whether messages of an aggregate share an ordering key; without one they come in any order. */
  readonly ordered: boolean
  /** How many events each aggregate has, and which of a video's are tombstones. */
  readonly videos: readonly { readonly tombstones: readonly boolean[] }[]
  readonly accounts: readonly number[]
  /** Messages that are published once more, by their place. */
  readonly again: readonly number[]
  /** Every nth call of a handler fails; 0 is never. */
  readonly failEvery: number
  readonly faults: readonly Fault[]
}

export interface ConsumerMutant {
  readonly delivery?: (delivery: Delivery) => Delivery
  readonly broken?: readonly InboxRule[]
  readonly brokenView?: readonly ViewRule[]
  /** Takes deltas for states, so that they need no predecessor. */
  readonly overGaps?: boolean
}

const faultySteps = 400
const patience = 30_000
const afterwards = 400

export const consumerWorlds: fc.Arbitrary<ConsumerWorld> = fc.record({
  seed: fc.nat(1_000_000),
  mode: fc.constantFrom('direct', 'stored'),
  instances: fc.constantFrom(1, 2, 2, 3),
  batchSize: fc.constantFrom(1, 2, 10),
  concurrency: fc.constantFrom(1, 2),
  ordered: fc.boolean(),
  videos: fc.array(fc.record({ tombstones: fc.array(fc.boolean(), { minLength: 1, maxLength: 4, size: 'max' }) }), {
    maxLength: 2,
  }),
  accounts: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 2 }),
  again: fc.array(fc.nat(12), { maxLength: 8, size: 'max' }),
  failEvery: fc.constantFrom(0, 0, 3, 5),
  faults: faults(['kill', 'kill', 'cut', 'cut', 'leap', 'setBack'], { steps: faultySteps, count: 6 }),
})

interface Scene {
  readonly world: ConsumerWorld
  readonly mutant: ConsumerMutant
  readonly stage: Stage
  readonly store: FakeStore
  readonly scope: Scope
  readonly inbox: InboxStore
  readonly effects: EffectStore
  readonly broker: FakeBroker
  calls: number
  setBackMs: number
  isCalm: boolean
}

export async function consumerHistory(scheduler: Scheduler, world: ConsumerWorld, mutant: ConsumerMutant = {}): Promise<Outcome> {
  const scene = createScene(scheduler, world, mutant)
  const { stage, store, inbox, effects } = scene
  const published = messagesOf(world)
  const watch = consumerViolations({ store, inbox, effects })
  const source = publishAll(scene, published)
  const instances = Array.from({ length: world.instances }, (_, i) => new Actor(`consumer-${i}`, stage))
  for (const place of instances.keys()) startConsumer(scene, instances, place)
  for (const fault of world.faults) stage.plan(fault.at, () => happen(scene, instances, fault))
  await stage.run(() => source.isDone() && stage.isOver && stage.steps >= faultySteps, faultySteps * 20)

  scene.isCalm = true
  scene.broker.calm()
  for (let at = stage.steps; at < stage.steps + patience; at += 300) stage.plan(at, () => stage.leap(1_000))
  const expected: Expected[] = published.map(({ attributes: a }) => ({
    eventId: a['event_id'] ?? '',
    type: a['aggregate_type'] ?? '',
    aggregate: a['aggregate_id'] ?? '',
    version: Number(a['version']),
    removed: a['event_type'] === 'VideoRemoved',
  }))
  await stage.run(() => source.isDone() && watch.isComplete(expected), patience)
  // Whatever comes again must not do anything any more.
  await stage.run(() => false, afterwards)
  await stage.run(() => watch.isComplete(expected), patience)
  return { violations: watch.violations(expected), hash: stage.hash(), steps: stage.steps, trace: stage.trace }
}

function createScene(scheduler: Scheduler, world: ConsumerWorld, mutant: ConsumerMutant): Scene {
  const stage = new Stage(scheduler)
  const { clock } = new Actor('broker', stage)
  const store = new FakeStore({
    nowMs: () => clock.nowMs() - scene.setBackMs,
    pause: (what) => stage.step(what),
    sleep: (ms, signal) => stage.sleep(ms, signal),
  })
  const scope: Scope = { tables: inboxTables('waybill'), consumer: 'catalog', generation: 1 }
  const inbox = inboxStore(mutant.broken)
  const effects = effectStore()
  for (const define of [defineInbox, defineWaiting, defineLeases, defineAttempts, defineStoring, defineStored])
    define(store, scope, inbox)
  defineEffects(store, effects, new Set(mutant.brokenView))
  defineTransactions(store)
  const nasty = { reorderKeys: 0.3, dropAck: 0.1, duplicateDelivery: 0.1, redeliverSuccessors: 0.5, deliverAfterClose: 0.3 }
  const broker = fakeBroker({ clock, random: seededRandom(world.seed), nasty })
  const scene: Scene = { world, mutant, stage, store, scope, inbox, effects, broker, calls: 0, setBackMs: 0, isCalm: false }
  return scene
}

function startConsumer(scene: Scene, instances: Actor[], place: number): void {
  const actor = instances[place] as Actor
  const { world, stage, store, scope, broker } = scene
  const transport = wrapped(scene, broker.connect(actor))
  const settings = resolveConsumerOptions({
    db: fakeDatabase(store, actor, stage),
    transport,
    name: scope.consumer,
    streams: [videos, accounts],
    mode: world.mode,
    batchSize: world.batchSize,
    concurrency: world.concurrency,
    leaseMs: 300,
    lingerMs: 2,
    pollMs: 20,
    maxAttempts: 1_000,
    maxCrashes: 1_000,
    backoff: { firstMs: 1, maxMs: 20 },
    signals: createSignals(),
    clock: actor.clock,
    random: seededRandom(`${world.seed} ${actor.name}`),
  })
  const never = new AbortController().signal
  const life = { stopping: never, aborting: never }
  const watch = { opened: () => undefined, closed: () => undefined, committed: () => undefined }
  const registered = { generation: scope.generation, paused: false }
  const running = runConsumer({
    settings,
    routes: routesOf(scene),
    tables: scope.tables,
    registered,
    life,
    watch,
  })
  // It ends when it cannot even begin; whoever supervises it starts it again.
  running.catch(() => replace(scene, instances, { place, arrives: false }))
}

function replace(
  scene: Scene,
  instances: Actor[],
  { place, arrives }: { readonly place: number; readonly arrives: boolean },
): void {
  instances[place]?.kill(arrives)
  instances[place] = new Actor(`consumer-${place}-${scene.stage.steps}`, scene.stage)
  startConsumer(scene, instances, place)
}

function routesOf(scene: Scene): ReturnType<RouteBook['build']> {
  const { world, scope } = scene
  const book = new RouteBook(scope.consumer, [videos, accounts])
  const handle = async (event: HandledEvent, { tx }: { readonly tx: never }): Promise<void> => {
    scene.calls += 1
    if (!scene.isCalm && world.failEvery > 0 && scene.calls % world.failEvery === 0) throw new Error('not today')
    const { id: eventId, aggregateId: aggregate, version } = event
    await execute(tx, insertEffect({ eventId, aggregate, version: Number(version) }))
  }
  book.on(videos.VideoPublished, handle as never)
  book.on(videos.VideoRemoved, handle as never)
  book.on(accounts.Deposited, handle as never)
  book.project(createProjection(videos, { table: viewTable, key: 'video_id', set: (event) => ({ title: event.data.title }) }))
  const routes = book.build()
  if (scene.mutant.overGaps !== true) return routes
  const stream: typeof routes.stream = (type) => {
    const found = routes.stream(type)
    return found === undefined ? undefined : { ...found, sequential: false }
  }
  return { ...routes, stream, sequentialTypes: [], standing: [] }
}

interface HandledEvent {
  readonly id: string
  readonly aggregateId: string
  readonly version: bigint
}

function wrapped({ mutant }: Scene, transport: Transport): Transport {
  const { delivery: change } = mutant
  if (change === undefined) return transport
  return {
    ...transport,
    receive: (options) => transport.receive({ ...options, onDelivery: (delivery) => options.onDelivery(change(delivery)) }),
  }
}

/** All events of the world, each aggregate's in the order of versions. */
function messagesOf(world: ConsumerWorld): OutgoingMessage[] {
  const films = world.videos.flatMap(({ tombstones }, v) =>
    tombstones.map((isTombstone, i) => {
      const of = { stream: videos, type: isTombstone ? 'VideoRemoved' : 'VideoPublished', id: `v${v}`, version: i + 1 }
      return message(of, isTombstone ? null : { title: `v${v} ${i + 1}` }, attributesOf(of.id, of.version))
    }),
  )
  const deposits = world.accounts.flatMap((count, a) =>
    Array.from({ length: count }, (_, i) =>
      message({ stream: accounts, type: 'Deposited', id: `a${a}`, version: i + 1 }, { amount: 1 }, attributesOf(`a${a}`, i + 1)),
    ),
  )
  return [...films, ...deposits].map((each) => (world.ordered ? each : { ...each, orderingKey: undefined }))
}

function attributesOf(id: string, version: number): Record<string, string> {
  return { event_id: businessKeyId('simulation', [id, version]), occurred_at: '2025-01-01T00:00:00.000Z' }
}

function publishAll({ world, stage, broker }: Scene, published: readonly OutgoingMessage[]): { isDone(): boolean } {
  const random = seededRandom(`${world.seed} source`)
  let done = false
  const publish = async (): Promise<void> => {
    const line = world.ordered ? [...published] : published.toSorted(() => random.next() - 0.5)
    for (const [i, each] of line.entries()) {
      await stage.step('source: publish')
      broker.log.land(each)
      // A duplicate, when others may have come in between.
      const earlier = line[i - 1]
      if (world.again.includes(i) && earlier !== undefined) broker.log.land(earlier)
    }
    done = true
  }
  void publish()
  return { isDone: () => done }
}

function happen(scene: Scene, instances: Actor[], fault: Fault): void {
  const { stage } = scene
  const place = fault.who % instances.length
  const actor = instances[place] as Actor
  stage.note(`fault: ${fault.kind} ${actor.name} ${fault.arrives}`)
  if (fault.kind === 'kill') replace(scene, instances, { place, arrives: fault.arrives })
  if (fault.kind === 'cut') actor.cut(fault.arrives)
  if (fault.kind === 'leap') stage.leap(fault.ms)
  if (fault.kind === 'setBack') scene.setBackMs += 2_000_000
}
