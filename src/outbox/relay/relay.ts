/**
 * The relay as a service: moves committed events from the outbox to the broker, beside any number of other relays.
 *
 * In the service's own process, in one of its own, or as a job that drains and exits: it is the same relay. Stopping it
 * finishes the batch in hand and gives the lanes back, so that others go on at once; a killed one stalls its lanes until
 * its leases end.
 */
import type { Lifetime, Service } from '../../core/service/lifetime.ts'
import { createWaker } from '../../core/service/loop.ts'
import { createPulse } from '../../core/service/heartbeat.ts'
import { assertSchema } from '../../postgres/schema/deployment.ts'
import { createListener } from '../../postgres/listen.ts'
import { createLaneHints, type LaneHint, readHint } from '../wake-up/lane-hints.ts'
import { outboxChannel } from '../wake-up/notify.ts'
import { createRelayEngine, relayDatabase, type RelayEngine } from './engine.ts'
import { resolveRelayOptions, type RelayOptions, type RelaySettings } from './relay-options.ts'

export interface Relay extends Service {
  readonly settings: RelaySettings
  readonly lastPassAgeMs: () => number | undefined
  /**
   * Works until nothing is due any more, gives its lanes back and returns how many events it published. `stopping` ends it after the
   * batch in hand, `aborting` at once.
   */
  once(stopping?: AbortSignal, aborting?: AbortSignal): Promise<number>
  /** Says that there is news: shortens the wait under way. */
  nudge(): void
}

export function createRelay(options: RelayOptions): Relay {
  const settings = resolveRelayOptions(options)
  const { outbox, service, deploymentId, listen, signals, clock } = settings
  const waker = createWaker()
  const hints = createLaneHints(clock, settings.idleMs)
  const pulse = createPulse(clock)
  const wake = (hint: LaneHint): void => {
    hints.add(hint)
    waker.wake()
  }
  const withEngine = async <Result>(work: (engine: RelayEngine) => Promise<Result>): Promise<Result> => {
    await assertSchema(relayDatabase(settings), { schema: outbox.tables.schema, service, deploymentId })
    const engine = createRelayEngine(settings, { hints })
    const unsubscribe = outbox.onCommitted(wake)
    try {
      return await work(engine)
    } finally {
      unsubscribe()
      await engine.leave()
    }
  }
  const hear = async (life: Lifetime): Promise<void> => {
    if (listen === undefined) return
    const channel = outboxChannel(outbox)
    await createListener({ url: listen, channel, onNotification: (payload) => wake(readHint(payload)), signals, clock }).run(life)
  }
  return {
    name: `relay ${settings.name}`,
    settings,
    lastPassAgeMs: pulse.ageMs,
    nudge: () => wake(undefined),
    run: (life) =>
      withEngine((engine) => pulse.during(async () => void (await Promise.all([engine.run(life, waker, pulse), hear(life)])))),
    once: (stopping = new AbortController().signal, aborting = new AbortController().signal) =>
      withEngine((engine) => engine.drain({ stopping, aborting })),
  }
}
