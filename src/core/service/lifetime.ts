/**
 * Services and their two-step stop.
 *
 * A service runs until `stopping` aborts, finishes the work in hand and returns. If that takes longer than
 * `stopTimeoutMs`, `aborting` tells it to give up the work in hand as well. If one service fails, all are stopped.
 * This library never installs signal handlers: the caller owns the process and passes a signal.
 */
import { systemClock, type Clock } from './clock.ts'
import { defaults } from '../defaults.ts'
import { WaybillError } from '../errors.ts'
import { resolve, atLeast } from '../options.ts'
import { defaultSignals, type SignalBus } from '../signals.ts'
import { untilAborted } from './abort.ts'

export interface Lifetime {
  /** Take no new work. */
  readonly stopping: AbortSignal
  /** Give up the work in hand. */
  readonly aborting: AbortSignal
}

export interface Service {
  readonly name: string
  /** Resolves when the service has stopped; rejects when it cannot go on. */
  run(lifetime: Lifetime): Promise<void>
  /** How long ago its last pass ended, by success or failure; `undefined` while it does not run. For liveness. */
  readonly lastPassAgeMs?: () => number | undefined
}

export interface RunOptions {
  /** Aborting it stops the services. */
  readonly signal: AbortSignal
  /** How long the work in hand may take after the stop. @default 20_000 */
  readonly stopTimeoutMs?: number
  /** How long a service may take to give up after that; then `run` rejects and names it. @default 5_000 */
  readonly abortTimeoutMs?: number
  readonly signals?: SignalBus
  readonly clock?: Clock
}

/** Runs the services until `signal` aborts or one of them fails; rejects with the first failure. */
export async function run(services: readonly Service[], options: RunOptions): Promise<void> {
  const { signal, stopTimeoutMs, abortTimeoutMs, signals, clock } = resolveRunOptions(options)
  const stopping = new AbortController()
  const aborting = new AbortController()
  const stop = (): void => stopping.abort()
  signal.addEventListener('abort', stop, { once: true })
  if (signal.aborted) stop()

  const running = new Map(services.map(({ name }, index) => [index, name]))
  let failure: { readonly error: unknown } | undefined
  const supervise = async (service: Service, index: number): Promise<void> => {
    signals.emit('service.started', { service: service.name })
    try {
      await service.run({ stopping: stopping.signal, aborting: aborting.signal })
      signals.emit('service.stopped', { service: service.name })
    } catch (error) {
      signals.emit('service.stopped', { service: service.name, error })
      failure ??= { error }
      stop()
    } finally {
      running.delete(index)
    }
  }
  const ended = new AbortController()
  const all = Promise.all(services.map(supervise)).finally(() => ended.abort())

  await Promise.race([all, untilAborted(stopping.signal)])
  await Promise.race([all, clock.sleep(stopTimeoutMs, ended.signal)])
  aborting.abort()
  await Promise.race([all, clock.sleep(abortTimeoutMs, ended.signal)])
  signal.removeEventListener('abort', stop)

  if (failure !== undefined) throw failure.error
  if (running.size > 0) {
    throw new WaybillError(
      'TIMEOUT',
      `These services did not stop in ${stopTimeoutMs + abortTimeoutMs} ms: ${[...running.values()].join(', ')}. End the process.`,
    )
  }
}

function resolveRunOptions(options: RunOptions): Required<RunOptions> {
  const never = new AbortController().signal
  return resolve<Required<RunOptions>>(
    'run',
    { signal: never, ...defaults.run, signals: defaultSignals, clock: systemClock },
    options,
    {
      stopTimeoutMs: atLeast(0),
      abortTimeoutMs: atLeast(0),
      signal: (signal) => signal instanceof AbortSignal || 'must be an AbortSignal',
    },
  )
}
