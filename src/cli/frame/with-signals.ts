/**
 * What a command listens to: the bus of components that were given none. So it hears of transports that a configuration makes
 * without knowing of signals, and of its own database connections, too.
 */
import { defaultSignals, type SignalBus } from '../../core/signals.ts'

/** Runs `work`; what it subscribed to ends with it. */
export async function withSignals<Result>(work: (signals: SignalBus) => Promise<Result>): Promise<Result> {
  const ends: (() => void)[] = []
  const kept = (end: () => void): (() => void) => {
    ends.push(end)
    return end
  }
  try {
    return await work({
      emit: defaultSignals.emit,
      on: (name, listener) => kept(defaultSignals.on(name, listener)),
      onAny: (listener) => kept(defaultSignals.onAny(listener)),
    })
  } finally {
    for (const end of ends) end()
  }
}
