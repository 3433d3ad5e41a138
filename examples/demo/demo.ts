/**
 * The demo: a system, the users who work with it, the checker that watches it, and everything that can be done to it.
 *
 * `finish` ends the traffic, waits until everything has arrived, checks what holds only at rest, and closes the books.
 */
import { pubsub } from 'waybill/pubsub'
import { checkBooks } from '../game/books.ts'
import { createActions, type Action } from './actions.ts'
import { Latencies } from './latencies.ts'
import { Ledger } from './ledger.ts'
import { findDifferences, Observer } from './observer.ts'
import type { ProcessKeeper } from './process-keeper.ts'
import { streams } from './streams.ts'
import { startSystem, straight, type System } from './system.ts'
import { Tap } from './tap.ts'
import { Timeline, type Happening } from './timeline.ts'
import { Traffic } from './traffic.ts'
import { settle, startWatch } from './watch.ts'

export interface DemoOptions {
  readonly env: Readonly<Record<string, string | undefined>>
  readonly perSecond: number
  readonly onHappening: (happening: Happening) => void
}

export interface Demo {
  readonly system: System
  readonly processes: readonly ProcessKeeper[]
  readonly ledger: Ledger
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
  const { settings, databases, broker, cache, keepers, video, catalog } = system
  const latencies = new Latencies()
  const ledger = new Ledger(latencies)
  const tap = new Tap(pubsub(straight(broker)), ledger)
  closers.defer(() => tap.close())
  await tap.open(streams, system.tapConsumer)

  const at = (port: number): string => `http://127.0.0.1:${port}`
  const urls = { videoUrl: at(settings.videoPort), catalogUrl: at(settings.catalogPort) }
  const traffic = new Traffic({ ...urls, ledger, perSecond })
  const observer = new Observer({ video, catalog, ledger, isForged: (eventId) => tap.isForged(eventId) })
  const proxies = [databases.proxy, broker.proxy].filter((proxy) => proxy !== undefined)
  const actions = createActions({ keepers, proxies, cache, tap, timeline })
  const processes = Object.values(keepers)
  const watch = startWatch({ ledger, latencies, observer, timeline, processes })
  closers.defer(() => watch.stop())
  traffic.start()
  const kept = closers.move()
  const finish = async (patienceMs: number): Promise<void> => {
    await watch.stop()
    await settle({ traffic, ledger, observer, patienceMs })
    const problems = [...(await findDifferences(video, catalog)), ...(await checkBooks(video))]
    for (const problem of problems) ledger.violate('stale', problem)
    ledger.close()
  }
  const stop = (): Promise<void> => kept.disposeAsync()
  return { system, processes, ledger, latencies, observer, tap, traffic, timeline, actions, startedAtMs, finish, stop }
}
