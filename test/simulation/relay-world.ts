/**
 * Relays, writers and an operator on one outbox, all of it the real code, in a world of which nothing can be relied on.
 *
 * Writers record events in transactions, some of which roll back. Relays lease lanes and publish. Processes are killed and
 * cut off, time leaps, the broker lies and refuses. Then the faults stop, and what the outbox promises must hold: nothing
 * lost, nothing made up, the first of each version in order, nothing left; and no relay ever wrote into a lane that was
 * another's.
 */
import fc, { type Scheduler } from 'fast-check'
import { businessKeyId } from '../../src/core/event/id.ts'
import { seededRandom } from '../../src/core/service/random.ts'
import { createSignals } from '../../src/core/signals.ts'
import { createWaker } from '../../src/core/service/loop.ts'
import { createOutbox, event } from '../../src/outbox/outbox.ts'
import { redriveParked, skipParked } from '../../src/outbox/operate/parked.ts'
import { createRelayEngine } from '../../src/outbox/relay/engine.ts'
import { createLaneHints } from '../../src/outbox/wake-up/lane-hints.ts'
import { resolveRelayOptions } from '../../src/outbox/relay/relay-options.ts'
import { relaySteps, type RelaySteps } from '../../src/outbox/relay/steps.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { checkHistory } from '../../src/testing/history/checker.ts'
import { aggregateName } from '../../src/testing/history/entry.ts'
import { createHistory } from '../../src/testing/history/history.ts'
import { logEntry } from '../../src/testing/history/message-entries.ts'
import type { Publisher } from '../../src/transport/port/transport.ts'
import { videos } from '../setup/outbox-fixture.ts'
import { Actor } from './actor.ts'
import { fakeBroker, type FakeBroker } from './fake-broker.ts'
import { fakeDatabase } from './fake-database.ts'
import { faults, type Fault } from './faults.ts'
import type { Outcome } from './simulate.ts'
import { Stage } from './stage.ts'
import { defineAdding } from './store/add-statements.ts'
import { defineDispatch } from './store/dispatch-statements.ts'
import { FakeStore, type Committed } from './store/fake-store.ts'
import { defineLanes } from './store/lane-statements.ts'
import { outboxStore, type Dispatch, type Lane, type OutboxRule, type OutboxStore } from './store/outbox-tables.ts'
import { defineParked } from './store/parked-statements.ts'
import { defineTransactions } from './store/transaction-statements.ts'

/** What fast-check chooses. */
export interface RelayWorld {
  readonly seed: number
  readonly lanes: number
  readonly relays: number
  readonly batchSize: number
  readonly maxAttempts: number
  /** Transactions of writers: which aggregates get an event each, and whether it rolls back in the end. */
  readonly writes: readonly { readonly aggregates: readonly string[]; readonly fails: boolean }[]
  /** Events that the broker refuses until it is told better: `a2`. */
  readonly refused: readonly string[]
  readonly faults: readonly Fault[]
}

/** A rule of the relay that is broken on purpose. */
export interface RelayMutant {
  readonly steps?: Partial<RelaySteps>
  readonly publisher?: (publisher: Publisher) => Publisher
  readonly broken?: readonly OutboxRule[]
}

const faultySteps = 500
const patience = 40_000

export const relayWorlds: fc.Arbitrary<RelayWorld> = fc.record({
  seed: fc.nat(1_000_000),
  lanes: fc.constantFrom(1, 2),
  relays: fc.integer({ min: 1, max: 3 }),
  batchSize: fc.constantFrom(1, 2, 100),
  maxAttempts: fc.constantFrom(1, 2),
  writes: fc.array(
    fc.record({
      aggregates: fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 3 }),
      fails: fc.nat(5).map((n) => n === 0),
    }),
    { minLength: 1, maxLength: 8, size: 'max' },
  ),
  refused: fc.subarray(['a1', 'a2', 'b1', 'b3', 'c2']),
  faults: faults(['kill', 'kill', 'cut', 'cut', 'leap', 'leap', 'setBack', 'outage', 'operate'], {
    steps: faultySteps,
    count: 8,
  }),
})

export async function relayHistory(scheduler: Scheduler, world: RelayWorld, mutant: RelayMutant = {}): Promise<Outcome> {
  const scene = createScene(scheduler, world, mutant)
  const { stage, store, data, broker } = scene
  const relays = Array.from({ length: world.relays }, (_, i) => startRelay(scene, `relay-${i}`))
  const writers = [0, 1].map((i) => startWriter(scene, i))
  for (const fault of world.faults) stage.plan(fault.at, () => happen(scene, relays, fault))
  const isWritten = (): boolean => writers.every(({ isDone }) => isDone())
  await stage.run(() => isWritten() && stage.isOver && stage.steps >= faultySteps, faultySteps * 20)

  broker.calm()
  scene.isCalm = true
  startOperator(scene, { forever: true })
  // Time goes on faster, so that also what waits for long gets its turn.
  for (let at = stage.steps; at < stage.steps + patience; at += 300) stage.plan(at, () => stage.leap(1_000))
  const isEmpty = (): boolean => isWritten() && store.committed(data.dispatch).length === 0
  await stage.run(isEmpty, patience)
  // What is late lands when its time has come, and time goes on by steps only.
  let isQuiet = false
  void broker.publishing.quiet().then(() => (isQuiet = true))
  await stage.run(() => isQuiet, patience)
  const history = createHistory()
  for (const message of broker.log.published) history.record(logEntry(message))
  for (const { id, aggregateType, aggregateId, version } of store.committed(data.outbox))
    history.record({ op: 'commit', event: id, aggregate: aggregateName(aggregateType, aggregateId), version })
  history.record({ op: 'rest', left: { 'outbox rows': store.committed(data.dispatch).length } })
  const found = checkHistory(history.entries).violations.map(({ text }) => text)
  const unended = [...(isWritten() ? [] : ['a writer never ended']), ...(isQuiet ? [] : ['a message never landed'])]
  return {
    violations: [...new Set([...scene.trespasses, ...found, ...unended])],
    hash: stage.hash(),
    steps: stage.steps,
    trace: stage.trace,
  }
}

interface Scene {
  readonly world: RelayWorld
  readonly mutant: RelayMutant
  readonly stage: Stage
  readonly store: FakeStore
  readonly data: OutboxStore
  readonly broker: FakeBroker
  readonly outbox: ReturnType<typeof createOutbox>
  /** Writes of relays into lanes that were another's. */
  readonly trespasses: string[]
  isCalm: boolean
  setBackMs: number
}

function createScene(scheduler: Scheduler, world: RelayWorld, mutant: RelayMutant): Scene {
  const stage = new Stage(scheduler)
  const clock = new Actor('broker', stage).clock
  const random = seededRandom(world.seed)
  const data = outboxStore(world.lanes, mutant.broken)
  const store = new FakeStore({
    nowMs: () => clock.nowMs() - scene.setBackMs,
    pause: (what) => stage.step(what),
    sleep: (ms, signal) => stage.sleep(ms, signal),
  })
  const outbox = createOutbox()
  const nasty = { duplicatePublish: 0.1, failPublish: 0.1, lieOnPublish: 0.1, landLate: 0.1 }
  const broker = fakeBroker({ clock, random, nasty })
  broker.publishing.rejects = ({ attributes: { aggregate_id: id, version, event_type: type } }) =>
    type !== 'waybill.void' && world.refused.includes(`${id}${version}`)
  const scene: Scene = { world, mutant, stage, store, data, broker, outbox, trespasses: [], isCalm: false, setBackMs: 0 }
  defineAdding(store, outbox.tables, data)
  defineDispatch(store, outbox.tables, data)
  defineLanes(store, outbox.tables, data)
  defineParked(store, outbox.tables, data)
  defineTransactions(store)
  store.seed(
    data.lane,
    Array.from({ length: world.lanes }, (_, lane): Lane => ({
      lane,
      token: null,
      lockedBy: null,
      lockedAt: null,
      expiresAt: null,
    })),
  )
  store.onCommit((committed) => watchTrespass(scene, committed))
  return scene
}

/** A relay changes rows of its own lanes only: whatever it thinks it holds, the lane's row says whose it is. */
function watchTrespass({ store, data, trespasses }: Scene, { by, changes }: Committed): void {
  if (!by.startsWith('relay')) return
  const owners = new Map(store.committed(data.lane).map(({ lane, lockedBy }) => [lane, lockedBy]))
  for (const { table, ...change } of changes) {
    const [before, after] = [change.before, change.after] as (Dispatch | undefined)[]
    if (table !== 'outbox_dispatch' || before === undefined || isOnlyPulledBack(before, after)) continue
    if (owners.get(before.lane) !== by) trespasses.push('wrote into a lane that was another’s')
  }
}

/** Retries that a clock which was set back has put out of reach are brought back in all lanes, whosever they are. */
function isOnlyPulledBack(before: Dispatch, after: Dispatch | undefined): boolean {
  return after?.state === 1 && before.state === 1 && after.attempts === before.attempts && after.lastError === before.lastError
}

interface RelayProcess {
  actor: Actor
  lives: number
}

function startRelay(
  scene: Scene,
  name: string,
  process: RelayProcess = { actor: new Actor(name, scene.stage), lives: 1 },
): RelayProcess {
  const { stage, store, broker, outbox, mutant, world } = scene
  const { actor } = process
  const port = broker.connect(actor)
  const publisher = mutant.publisher?.(port) ?? port
  const settings = resolveRelayOptions({
    db: fakeDatabase(store, actor, stage),
    outbox,
    transport: publisher,
    name: actor.name,
    leaseMs: 400,
    renewMs: 100,
    // A timer of the machine would end a publish by the machine's time.
    publishTimeoutMs: 29_000,
    batchSize: world.batchSize,
    idleMs: 20,
    maxAttempts: world.maxAttempts,
    backoff: { firstMs: 10, maxMs: 40 },
    signals: createSignals(),
    clock: actor.clock,
    random: seededRandom(`${world.seed} ${actor.name}`),
  })
  const hints = createLaneHints(actor.clock, settings.idleMs)
  const waker = createWaker()
  // In every other life it hears of commits; in the rest it only polls.
  if (process.lives % 2 === 1)
    outbox.onCommitted((hint) => {
      hints.add(hint)
      waker.wake()
    })
  const engine = createRelayEngine(settings, { hints, steps: { ...relaySteps, ...mutant.steps } })
  const never = new AbortController().signal
  void engine.run({ stopping: never, aborting: never }, waker)
  return process
}

function startWriter(scene: Scene, index: number): { isDone(): boolean } {
  const { world, stage, store, outbox } = scene
  const actor = new Actor(`writer-${index}`, stage)
  const db = fakeDatabase(store, actor, stage)
  const options = { clock: actor.clock, random: seededRandom(`${world.seed} ${actor.name}`), signals: createSignals() }
  let done = false
  const write = async (): Promise<void> => {
    for (const [i, { aggregates, fails }] of world.writes.entries()) {
      if (i % 2 !== index) continue
      const events = aggregates.map((id, n) =>
        event(videos.VideoPublished, id, { title: `${i} ${n}` }, { id: businessKeyId('simulation', [i, n]) }),
      )
      await transaction(
        db,
        async (tx) => {
          // One by one or all at once: two ways into the outbox.
          if (i % 3 === 0) for (const each of events) await outbox.addMany(tx, [each])
          else await outbox.addMany(tx, events)
          if (fails) throw new Error('the card was declined')
        },
        options,
      ).catch(() => undefined)
    }
    done = true
  }
  void write()
  return { isDone: () => done }
}

/** Looks after what is parked: once, or until the end. */
function startOperator(scene: Scene, { forever }: { readonly forever: boolean }): void {
  const { stage, store, outbox } = scene
  const actor = new Actor('operator', stage)
  const db = fakeDatabase(store, actor, stage)
  const act = async (): Promise<void> => {
    for (let round = 0; ; round += 1) {
      const action = { db, outbox, filter: { all: true }, actor: 'operator' } as const
      await (round % 2 === 0 ? redriveParked(action) : skipParked(action)).catch(() => undefined)
      if (!forever) return
      await actor.clock.sleep(200)
    }
  }
  void act()
}

function happen(scene: Scene, relays: RelayProcess[], fault: Fault): void {
  const { stage, broker } = scene
  const process = relays[fault.who % relays.length] as RelayProcess
  stage.note(`fault: ${fault.kind} ${process.actor.name} ${fault.arrives}`)
  if (fault.kind === 'kill') {
    process.actor.kill(fault.arrives)
    process.lives += 1
    process.actor = new Actor(`relay-${fault.who % relays.length}-${process.lives}`, stage)
    startRelay(scene, process.actor.name, process)
  }
  if (fault.kind === 'cut') process.actor.cut(fault.arrives)
  if (fault.kind === 'leap') stage.leap(fault.ms)
  if (fault.kind === 'setBack') scene.setBackMs += 2_000_000
  if (fault.kind === 'outage') {
    broker.publishing.outage = (['none', 'refuse', 'lie'] as const)[fault.who % 4] ?? 'none'
    broker.publishing.missing = new Set(fault.who % 4 === 3 ? [videos.topic] : [])
  }
  if (fault.kind === 'operate') startOperator(scene, { forever: false })
}
