/**
 * Everything that can be done to the system, by a button of the page or by the headless run. Each says what it did in the timeline.
 *
 * What the demo did not start is not harmed: its action is disabled and says why.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Network } from './network.ts'
import { processLabels, type ProcessKeeper, type ProcessName } from './process-keeper.ts'
import type { Cache } from './services.ts'
import type { Tap } from './tap.ts'
import type { Timeline } from './timeline.ts'

export interface Action {
  readonly name: string
  readonly label: string
  readonly hint: string
  /** Why it cannot be done here. */
  readonly disabled: string | undefined
  /** How often it was done. */
  count: number
  readonly run: () => Promise<void>
}

export interface ActionParts {
  readonly keepers: Readonly<Partial<Record<ProcessName, ProcessKeeper>>>
  /** In front of what the demo started itself. */
  readonly network: Network
  readonly cache: Cache
  readonly tap: Tap
  readonly timeline: Timeline
}

const cutMs = 1_500
const redisDownMs = 3_000
const injectPatienceMs = 30_000

export function createActions({ keepers, network, cache, tap, timeline }: ActionParts): readonly Action[] {
  const kill = (name: ProcessName, hint: string): Action => {
    const label = processLabels[name]
    const keeper = keepers[name]
    const run = async (): Promise<void> => {
      timeline.add('fault', `kill -9 ${label} (pid ${keeper?.pid ?? 'none'})`)
      await keeper?.kill()
    }
    const disabled = keeper === undefined ? `The ${label} was not started by this demo` : undefined
    return counted(timeline, { name: `kill-${name}`, label: `Kill the ${label}`, hint, disabled, run })
  }
  const inject = (name: string, words: { label: string; hint: string; what: string }, publish: () => Promise<number>): Action =>
    counted(timeline, {
      name,
      label: words.label,
      hint: words.hint,
      disabled: undefined,
      run: async () => timeline.add('fault', `${await untilTaken(publish)} ${words.what} put into the broker`),
    })
  return [
    kill('relay', 'Its leases end after 5 s; then the next one goes on'),
    kill('catalog', 'What it had in hand comes again and is recognised'),
    kill('broker', 'It kept what it confirmed; the rest waits in the outbox'),
    kill('video', 'Clients repeat their requests; none takes effect twice'),
    cutNetwork(network, timeline),
    stopRedis(cache, timeline),
    inject(
      'inject-duplicates',
      { label: 'Inject duplicates', hint: 'Messages that were there come again', what: 'duplicates' },
      () => tap.injectDuplicates(100),
    ),
    inject(
      'inject-stale',
      { label: 'Inject stale versions', hint: 'Old states arrive under new ids', what: 'old versions under new ids' },
      () => tap.injectStale(25),
    ),
    inject(
      'inject-poison',
      { label: 'Inject poison', hint: 'An event nobody understands becomes a dead letter', what: 'unknown event' },
      () => tap.injectPoison(),
    ),
  ]
}

function cutNetwork(network: Network, timeline: Timeline): Action {
  const run = async (): Promise<void> => {
    const connections = await network.cut()
    timeline.add('fault', `network cut: ${connections} connections to Postgres and broker are gone, new ones refused`)
    await delay(cutMs)
    await network.heal()
    timeline.add('recovery', `network is back after ${cutMs / 1_000} s`)
  }
  const disabled = network.isUsed ? undefined : 'Postgres and broker were not started by this demo'
  const hint = 'Answers to COMMIT and to publishes are lost'
  return counted(timeline, { name: 'cut-network', label: 'Cut the network', hint, disabled, run })
}

function stopRedis(cache: Cache, timeline: Timeline): Action {
  const run = async (): Promise<void> => {
    timeline.add('fault', 'Redis is killed, and what it remembered is gone')
    await cache.interrupt(redisDownMs)
    timeline.add('recovery', `Redis is back, empty, after ${redisDownMs / 1_000} s`)
  }
  const missing = 'There is no redis-server on this machine: commands are cached in their process'
  const disabled = cache.isOwn ? undefined : cache.url === undefined ? missing : 'Redis was not started by this demo'
  return counted(timeline, { name: 'stop-redis', label: 'Stop Redis', hint: 'Commands go on by their markers', disabled, run })
}

/** A broker that is down takes nothing, and a system that was just started has nothing old yet: then it is tried again. */
async function untilTaken(publish: () => Promise<number>): Promise<number> {
  const deadline = performance.now() + injectPatienceMs
  for (;;) {
    const taken = await publish()
    if (taken > 0 || performance.now() > deadline) return taken
    await delay(200)
  }
}

/** Counts the runs, and joins a run that is asked for while one is under way. What goes wrong is told, not thrown. */
function counted(timeline: Timeline, { run, ...action }: Omit<Action, 'count'>): Action {
  let running: Promise<void> | undefined
  const result: Action = {
    ...action,
    count: 0,
    run: async () => {
      if (running === undefined) result.count += 1
      running ??= run()
        .catch((error: unknown) => timeline.add('note', `${action.label} failed: ${String(error)}`))
        .finally(() => (running = undefined))
      await running
    },
  }
  return result
}
