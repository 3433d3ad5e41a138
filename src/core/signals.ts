/**
 * Everything this package reports, as one typed catalogue. Logs, metrics and traces are subscribers, never callers.
 *
 * Emitting costs next to nothing when nobody listens. A subscriber that throws is reported to the others and never
 * disturbs the work it watches. Each signal is also published on `node:diagnostics_channel` as `waybill:<name>`.
 */
import { channel, type Channel } from 'node:diagnostics_channel'

export interface Signals {
  /** A closure is run again, because the database refused to serialise it or chose it as a deadlock's victim. */
  'transaction.retried': { readonly attempt: number; readonly sqlState: string; readonly delayMs: number }
  /** The connection broke during COMMIT; `outcome` is what looking found. */
  'transaction.unknown': { readonly outcome: 'committed' | 'rolled-back' | 'unknown'; readonly xid: string | undefined }

  /** An idle connection of a pool broke; the pool opens another at the next use. */
  'database.idle-connection-lost': { readonly error: unknown }

  /** A service of `run` changed its state. */
  'service.started': { readonly service: string }
  'service.stopped': { readonly service: string; readonly error?: unknown }
  /** A pass threw; it is tried again after `delayMs`. */
  'service.failed': { readonly service: string; readonly error: unknown; readonly failures: number; readonly delayMs: number }

  /** A subscriber of signals threw. */
  'signals.failed': { readonly signal: string; readonly error: unknown }
}

export type SignalName = keyof Signals
export type Emit = <Name extends SignalName>(name: Name, event: Signals[Name]) => void
export type Listener<Name extends SignalName> = (event: Signals[Name], name: Name) => void

export interface SignalBus {
  readonly emit: Emit
  /** Calls `listener` for each signal of that name; returns the function that ends it. */
  on<Name extends SignalName>(name: Name, listener: Listener<Name>): () => void
  /** Calls `listener` for every signal, whatever its name. */
  onAny(listener: (event: Signals[SignalName], name: SignalName) => void): () => void
}

type AnyListener = (event: never, name: never) => void

/** A bus of its own: components that share one are observed together. */
export function createSignals(): SignalBus {
  const named = new Map<SignalName, AnyListener[]>()
  const any: AnyListener[] = []
  const channels = new Map<SignalName, Channel>()

  const call = (listeners: readonly AnyListener[] | undefined, name: SignalName, event: unknown): void => {
    for (const listener of listeners ?? []) {
      try {
        listener(event as never, name as never)
      } catch (error) {
        if (name !== 'signals.failed') emit('signals.failed', { signal: name, error })
      }
    }
  }
  const emit: Emit = (name, event) => {
    call(named.get(name), name, event)
    if (any.length > 0) call(any, name, event)
    const diagnostics = channels.get(name) ?? remember(channels, name)
    if (diagnostics.hasSubscribers) diagnostics.publish(event)
  }
  return {
    emit,
    on: (name, listener) => {
      const listeners = named.get(name) ?? []
      named.set(name, [...listeners, listener as AnyListener])
      return () => named.set(name, (named.get(name) ?? []).filter((each) => each !== listener))
    },
    onAny: (listener) => {
      any.push(listener as AnyListener)
      return () => void any.splice(any.indexOf(listener as AnyListener), 1)
    },
  }
}

/** For components that were given no bus: reports on `node:diagnostics_channel` only. */
export const defaultSignals: SignalBus = createSignals()

function remember(channels: Map<SignalName, Channel>, name: SignalName): Channel {
  const created = channel(`waybill:${name}`)
  channels.set(name, created)
  return created
}
