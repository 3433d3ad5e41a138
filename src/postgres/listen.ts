/**
 * Hears NOTIFY on a connection of its own, for as long as a service lives. It only ever shortens a wait: what it misses
 * while it is not connected, polling finds.
 *
 * LISTEN is state of a session, so the address must lead straight to the server. Behind a pooler in transaction mode it is
 * accepted and never heard again; therefore each new connection is tested by a notification from a second one, and one
 * that stays silent is reported and tried again later.
 */
import { randomUUID } from 'node:crypto'
import { Socket } from 'node:net'
import pg from 'pg'
import { systemClock, type Clock } from '../core/service/clock.ts'
import { WaybillError } from '../core/errors.ts'
import type { Lifetime, Service } from '../core/service/lifetime.ts'
import { loop } from '../core/service/loop.ts'
import { defaultSignals, type SignalBus } from '../core/signals.ts'
import { underSignals, unlessAborted, untilAborted } from '../core/service/abort.ts'
import { name } from './query/sql.ts'

export interface ListenOptions {
  /** Straight to the server, not through a pooler in transaction mode. */
  readonly url: string
  readonly channel: string
  readonly onNotification: (payload: string) => void
  /** How long the notification of the test may take. @default 3_000 */
  readonly testTimeoutMs?: number
  readonly signals?: SignalBus
  readonly clock?: Clock
}

/** A wait after a connection that worked and broke; those that never worked are backed off from. */
const reconnectMs = 100
const backoff = { firstMs: 500, maxMs: 60_000 }
/** How long a server may take to say goodbye. One that is out of reach never does, and whoever stops would wait for minutes. */
const goodbyeMs = 1_000

/** Listens until it is stopped, whatever happens to the connection. */
export function createListener(options: ListenOptions): Service {
  const { channel, signals = defaultSignals, clock = systemClock } = options
  return {
    name: `listener ${channel}`,
    run: (life) =>
      loop(() => listenOnce(options, life), life, {
        idleMs: () => reconnectMs,
        backoff,
        onError: (error, _failures, delayMs) => signals.emit('listen.failed', { channel, error, delayMs }),
        clock,
      }),
  }
}

/** One connection, from its beginning to its end. Throws if it never worked. */
async function listenOnce(options: ListenOptions, life: Lifetime): Promise<'idle'> {
  const { url, channel, onNotification, testTimeoutMs = 3_000, signals = defaultSignals, clock = systemClock } = options
  const { stopping } = life
  const { client, close } = connectionTo(url, clock)
  const ended = new AbortController()
  const end = (): void => ended.abort()
  let failure: Error | undefined
  client.on('error', (error) => {
    failure = error
    end()
  })
  client.on('end', end)
  stopping.addEventListener('abort', end, { once: true })

  const proof = randomUUID()
  const heard = new AbortController()
  client.on('notification', ({ payload = '' }) => (payload === proof ? heard.abort() : onNotification(payload)))
  try {
    await unlessAborted(
      client.connect().then(() => client.query(`listen ${name(channel).quoted}`)),
      stopping,
    )
    await sendFromElsewhere(options, proof, life)
    await underSignals([heard.signal, ended.signal], (signal) => clock.sleep(testTimeoutMs, signal))
    if (stopping.aborted) return 'idle'
    if (failure !== undefined) throw failure
    if (!heard.signal.aborted) throw deaf(channel)
    signals.emit('listen.ready', { channel })
    // Whatever was sent before now was missed.
    onNotification('')
    await untilAborted(ended.signal)
    if (!stopping.aborted) {
      const error = failure ?? new Error('the connection was closed')
      signals.emit('listen.failed', { channel, error, delayMs: reconnectMs })
    }
    return 'idle'
  } finally {
    stopping.removeEventListener('abort', end)
    await close()
  }
}

/** From the listening connection itself it would come back even through a pooler, and prove nothing. */
async function sendFromElsewhere(
  { url, channel, clock = systemClock }: ListenOptions,
  payload: string,
  { stopping }: Lifetime,
): Promise<void> {
  if (stopping.aborted) return
  const { client, close } = connectionTo(url, clock)
  client.on('error', () => undefined)
  try {
    await unlessAborted(
      client.connect().then(() => client.query('select pg_notify($1, $2)', [channel, payload])),
      stopping,
    )
  } finally {
    await close()
  }
}

/** A connection, and how to end it: politely, and after a moment without. */
function connectionTo(url: string, clock: Clock): { readonly client: pg.Client; readonly close: () => Promise<void> } {
  const socket = new Socket()
  const client = new pg.Client({
    connectionString: url,
    application_name: 'waybill listen',
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    stream: () => socket,
  })
  const close = async (): Promise<void> => {
    const closed = new AbortController()
    const ending = client.end().then(
      () => closed.abort(),
      () => closed.abort(),
    )
    await clock.sleep(goodbyeMs, closed.signal)
    if (!closed.signal.aborted) socket.destroy()
    await ending
  }
  return { client, close }
}

function deaf(channel: string): WaybillError {
  return new WaybillError(
    'UNAVAILABLE',
    `LISTEN ${channel} was accepted, but a notification did not arrive: a pooler in transaction mode stands between. Give the address of the server itself. Until then polling finds the news.`,
  )
}
