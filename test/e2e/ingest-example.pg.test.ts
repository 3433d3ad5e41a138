/** The way of a fact, as the reader of examples/ingest would run it: by one command. Every hop is killed in test/proof. */
import { expect, test } from 'vitest'
import { startChild } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { startFaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const script = new URL('../../scripts/example.ts', import.meta.url)
const consumer = new URL('../../examples/ingest/consumer.ts', import.meta.url)
const fromSource = new URL('../../scripts/from-source.ts', import.meta.url).href
const signalAgain = new URL('../fixtures/signal-again.ts', import.meta.url).href

test('one command starts it, and a reading that was accepted is found by its business key once it is in the table', async () => {
  const env = { INGEST_BROKER: 'pubsub', NODE_OPTIONS: `--import=${signalAgain}` }
  await using ingest = startChild(script, { args: ['ingest'], env })
  const { url } = await ingest.message<{ url: string }>((message) => typeof message?.url === 'string')
  const send = async (): Promise<unknown> => {
    const body = JSON.stringify({ meter: 'm/1', at: 1, value: 42 })
    const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
    return [response.status, await response.json()]
  }
  expect(await (await fetch(`${url}/m%2F1/1`)).json()).toMatchObject({ processed: false })
  const first = await send()
  expect(first).toEqual([202, { eventId: expect.any(String) }])
  expect(await send()).toEqual(first)
  await eventually(async () => expect(await (await fetch(`${url}/m%2F1/1`)).json()).toMatchObject({ processed: true }))
  expect(await ingest.kill('SIGINT')).toEqual({ code: 0, signal: null })
}, 180_000)

test('its consumer says that it is ready when it has a connection, and asks for one until then', async () => {
  const { hostname: host, port } = new URL(database.url)
  const proxy = await startFaultProxy({ target: { host, port: Number(port) } })
  proxy.refuse()
  const env = { NODE_OPTIONS: `--import=${fromSource}`, DATABASE_URL: proxy.url(database.url), BROKER: '127.0.0.1:1' }
  await using child = startChild(consumer, { env })
  let isReady = false
  const ready = child.message((message) => message === 'ready').then(() => (isReady = true))
  await Promise.race([child.exited, eventually(() => proxy.refused > 1)])
  expect(isReady).toBe(false)
  proxy.heal()
  await ready
  await proxy.stop()
})
