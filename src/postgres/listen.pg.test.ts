import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../test/setup/test-database.ts'
import { run } from '../core/service/lifetime.ts'
import { createSignals, type Signals } from '../core/signals.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { startFaultProxy, type FaultProxy } from '../testing/faults/fault-proxy.ts'
import { findPgBouncer, startPgBouncer } from '../testing/servers/pgbouncer.ts'
import { createListener } from './listen.ts'

const database = await testDatabase()

interface Listening {
  readonly heard: string[]
  readonly ready: number[]
  readonly failed: Signals['listen.failed'][]
  stop(): Promise<void>
}

function listen(url: string, channel: string): Listening {
  const signals = createSignals()
  const heard: string[] = []
  const ready: number[] = []
  const failed: Signals['listen.failed'][] = []
  signals.on('listen.ready', () => ready.push(heard.length))
  signals.on('listen.failed', (event) => failed.push(event))
  const stop = new AbortController()
  const listener = createListener({
    url,
    channel,
    onNotification: (payload) => void heard.push(payload),
    testTimeoutMs: 500,
    signals,
  })
  const running = run([listener], { signal: stop.signal, signals })
  return { heard, ready, failed, stop: async () => (stop.abort(), await running) }
}

test('what is sent after the connection was tested is heard, and the test itself is not', async () => {
  const { heard, ready, failed, stop } = listen(database.directUrl, 'news')
  await eventually(() => ready.length === 1)
  await database.pool.query(`select pg_notify('news', 'a'), pg_notify('other', 'b')`)
  await eventually(() => heard.includes('a'))
  // Empty: what came before the connection was ready may have been missed, so there may be news.
  expect(heard).toEqual(['', 'a'])
  expect(failed).toEqual([])
  await stop()
})

test('a connection that breaks is replaced, and whoever listens is told that something may have been missed', async () => {
  const { heard, ready, failed, stop } = listen(database.directUrl, 'broken')
  await eventually(() => ready.length === 1)
  await database.pool.query(
    `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'waybill listen' and datname = current_database()`,
  )
  await eventually(() => ready.length === 2)
  await database.pool.query(`select pg_notify('broken', 'again')`)
  await eventually(() => heard.includes('again'))
  expect(failed).toMatchObject([{ channel: 'broken', error: expect.any(Error) }])
  expect(heard).toEqual(['', '', 'again'])
  await stop()
})

test('an address where nobody listens is reported, and stopping does not wait for it', async () => {
  const { failed, stop } = listen('postgres://nobody@127.0.0.1:1/nothing', 'news')
  await eventually(() => failed.length > 0)
  await stop()
  expect(failed[0]?.error).toMatchObject({ code: 'ECONNREFUSED' })
})

describe('stopping does not wait for a server that is out of reach', () => {
  const throughProxy = async (work: (proxy: FaultProxy, url: string) => Promise<void>): Promise<void> => {
    const { hostname, port } = new URL(database.directUrl)
    const proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) } })
    try {
      await work(proxy, proxy.url(database.directUrl))
    } finally {
      await proxy.stop()
    }
  }

  test('while it listens', () =>
    throughProxy(async (proxy, url) => {
      const { ready, stop } = listen(url, 'silent')
      await eventually(() => ready.length === 1)
      proxy.stall()
      await stop()
    }))

  test.each(['listen "mute"', 'pg_notify'])('while it waits for the answer to %s', (statement) =>
    throughProxy(async (proxy, url) => {
      proxy.arm({ name: 'asked', direction: 'toServer', on: { match: (sent) => sent.includes(statement) }, action: 'stall' })
      const { stop } = listen(url, 'mute')
      await proxy.fired('asked')
      await stop()
    }),
  )
})

test.runIf(findPgBouncer() !== undefined)('behind a pooler in transaction mode it notices that it hears nothing', async () => {
  const bouncer = await startPgBouncer(database.directUrl)
  const { heard, ready, failed, stop } = listen(bouncer.url(database.directUrl), 'deaf')
  await eventually(() => failed.length > 0)
  await stop()
  await bouncer.stop()
  expect(failed[0]?.error).toMatchObject({
    code: 'UNAVAILABLE',
    message: expect.stringContaining('address of the server itself'),
  })
  expect({ heard, ready }).toEqual({ heard: [], ready: [] })
})
