/**
 * The demo: a system, the users who work with it, the checker that watches it, and everything that can be done to it.
 *
 * `finish` ends the traffic, waits until everything has arrived, checks what holds only at rest, and closes the books.
 */
import type { Consumer } from 'waybill'
import { pubsub } from 'waybill/pubsub'
import { checkBooks } from '../game/books.ts'
import { createActions, type Action } from './actions.ts'
import { createCatalog } from './catalog-consumer.ts'
import { RunHistory } from './history.ts'
import { Latencies } from './latencies.ts'
import { Ledger } from './ledger.ts'
import { Observer, readStates } from './observer.ts'
import type { ProcessKeeper } from './process-keeper.ts'
import { settle } from './settle.ts'
import { streams } from './streams.ts'
import { startSystem, straight, type System } from './system.ts'
import { Tap } from './tap.ts'
import { Timeline, type Happening } from './timeline.ts'
import { Traffic } from './traffic.ts'
import { startWatch } from './watch.ts'

export interface DemoOptions {
  readonly env: Readonly<Record<string, string | undefined>>
  readonly perSecond: number
  readonly onHappening: (happening: Happening) => void
}

export interface Demo {
  readonly system: System
  readonly processes: readonly ProcessKeeper[]
  readonly ledger: Ledger
  readonly history: RunHistory
  /** Knows what the catalog projects; it does not run here. */
  readonly consumer: Consumer
  readonly latencies: Latencies
  readonly observer: Observer
  readonly tap: Tap
  readonly traffic: Traffic
  readonly timeline: Timeline
  readonly actions: readonly Action[]
  readonly startedAtMs: number
  /** Ends the traffic and checks everything at rest; gives up on what has not arrived after `patienceMs`. */
  finish(patienceMs: number): Promise<void>
  /** Ends every process and removes every file. */
  stop(): Promise<void>
}

/** Starts everything; resolves when users are being served. */
export async function startDemo({ env, perSecond, onHappening }: DemoOptions): Promise<Demo> {
  const startedAtMs = Date.now()
  await using closers = new AsyncDisposableStack()
  const timeline = new Timeline(onHappening)
  const system = await startSystem(env, timeline)
  closers.defer(() => system.stop())
  const { settings, broker, cache, network, keepers, video, catalog } = system
  const latencies = new Latencies()
  const ledger = new Ledger(latencies)
  const history = new RunHistory()
  const transport = pubsub(straight(broker))
  const tap = new Tap(transport, { ledger, history })
  closers.defer(() => tap.close())
  await tap.open(streams, system.tapConsumer)

  const at = (port: number): string => `http://127.0.0.1:${port}`
  const urls = { videoUrl: at(settings.videoPort), catalogUrl: at(settings.catalogPort) }
  const traffic = new Traffic({ ...urls, ledger, history, perSecond })
  const name = settings.consumer
  const isForged = (eventId: string): boolean => tap.isForged(eventId)
  const observer = new Observer({ video, catalog, ledger, history, consumer: name, isForged })
  const consumer = createCatalog({ db: catalog, transport, name })
  const actions = createActions({ keepers, network, cache, tap, timeline })
  const processes = Object.values(keepers)
  const watch = startWatch({ ledger, latencies, observer, timeline, processes })
  closers.defer(() => watch.stop())
  traffic.start()
  const kept = closers.move()
  const finish = async (patienceMs: number): Promise<void> => {
    await watch.stop()
    await settle({ traffic, ledger, observer, tap, patienceMs })
    await closeBooks({ system, ledger, history, observer })
  }
  const stop = (): Promise<void> => kept.disposeAsync()
  const watched = { ledger, history, consumer, latencies, observer, tap, traffic, timeline }
  return { system, processes, ...watched, actions, startedAtMs, finish, stop }
}

/** Enters what holds only at rest: every row is its owner's, the game's books agree, and nothing is left under way. */
async function closeBooks({
  system,
  ledger,
  history,
  observer,
}: Pick<Demo, 'system' | 'ledger' | 'history' | 'observer'>): Promise<void> {
  const { video, catalog, settings } = system
  const states = await readStates(video, catalog)
  const consumer = settings.consumer
  for (const [aggregate, value] of states.owner) {
    history.record({ op: 'state', aggregate, value })
    if (states.catalog.get(aggregate) !== value) ledger.violate('stale', `${aggregate}: the catalog's row is not its owner's`)
  }
  for (const [aggregate, value] of states.catalog) {
    history.record({ op: 'state', consumer, aggregate, value })
    if (!states.owner.has(aggregate)) ledger.violate('stale', `${aggregate}: the catalog has it and its owner has not`)
  }
  for (const problem of await checkBooks(video)) ledger.violate('doubled', problem)
  const types = streams.map(({ aggregateType }) => aggregateType)
  history.record({ op: 'follow', consumer, types, projects: types })
  history.record({ op: 'rest', left: { 'events under way': ledger.flights.size, 'outbox rows': observer.sizes.backlog } })
  ledger.close()
}
