/** Servers of ours and clients that reset their connections in the middle of a request. */
import { expect, test } from 'vitest'
import { startTelemetryServer } from '../../../src/telemetry/telemetry-server.ts'
import { startFaultProxy } from '../../../src/testing/faults/fault-proxy.ts'
import { rudeGuests, uncaughtDuring } from '../../../test/setup/ending-server.ts'
import { startPubsubServer } from '../src/pubsub-server.ts'

/** The beginning of HTTP/2: its preface, settings, and a frame of headers that is cut short. */
const http2 = Buffer.concat([
  Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  Buffer.from('000000040000000000', 'hex'),
  Buffer.from('0000400104000000010102', 'hex'),
])
const put = 'PUT /faults HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{"dropAcks"'
const get = 'GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n'

test('end no server of ours, and none is in the way of its end', async () => {
  const host = '127.0.0.1'
  const uncaught = await uncaughtDuring(async () => {
    const health = (): Response => new Response('x'.repeat(1_000_000))
    const [broker, telemetry] = await Promise.all([startPubsubServer(), startTelemetryServer({ health })])
    const proxy = await startFaultProxy({ target: { host, port: broker.port } })
    await rudeGuests({ host, port: broker.port }, http2)
    await rudeGuests({ host, port: proxy.port }, http2)
    await rudeGuests({ host, port: Number(new URL(broker.adminUrl).port) }, put, { answered: false })
    await rudeGuests({ host, port: telemetry.port }, get)
    expect((await fetch(`${broker.adminUrl}/stats`)).status).toBe(200)
    await proxy.stop()
    await telemetry.close()
    await broker.stop()
  })
  expect(uncaught.map(String)).toEqual([])
})
