/**
 * An ingest in front of a broker that becomes slow: a real connection through a proxy that stops passing bytes on.
 */
import { expect, test } from 'vitest'
import { createIngestClient } from '../../src/ingest/ingest-client.ts'
import { createIngest } from '../../src/ingest/ingest.ts'
import { fetchIngest } from '../../src/integrations/fetch.ts'
import { startPubsubServer } from 'waybill-pubsub-server'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { startFaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import { applyProvision, planProvision } from '../../src/ops/provision/provision.ts'
import { desiredResources } from '../../src/ops/provision/desired.ts'
import { createPubsubAdmin } from '../../src/transport/pubsub/admin/admin.ts'
import { pubsub } from '../../src/transport/pubsub/pubsub.ts'
import { listen, nodeListener } from '../integrations/listen.ts'
import { reading, readingKey, readings } from './readings.ts'

test('a slow broker is answered with 429 and Retry-After, in bounded memory, and nothing that was confirmed is lost', async () => {
  const server = await startPubsubServer()
  const proxy = await startFaultProxy({ target: { host: server.host, port: server.port } })
  const admin = createPubsubAdmin({ projectId: 'slow', emulatorHost: server.emulatorHost })
  const desired = desiredResources({ streams: [readings], consumers: [{ name: 'table', streams: [readings] }] })
  await applyProvision(admin, await planProvision(admin, desired))
  const publisher = pubsub({ projectId: 'slow', emulatorHost: `${proxy.host}:${proxy.port}`, publishTimeoutMs: 40_000 })
  const reader = pubsub({ projectId: 'slow', emulatorHost: server.emulatorHost })
  const ingest = createIngest({
    event: readings.ReadingTaken,
    key: readingKey,
    to: publisher,
    slowMs: 200,
    maxInFlight: 50,
    publishTimeoutMs: 45_000,
  })
  const http = await listen(nodeListener(fetchIngest(ingest, { path: '/readings' })))
  const arrived = new Set<string>()
  const receiver = await reader.receive({
    topic: 'reading.events',
    consumer: 'table',
    maxMessages: 1_000,
    maxBytes: 10_000_000,
    onError: () => {},
    onDelivery: (delivery) => {
      arrived.add(delivery.message.attributes['event_id'] ?? '')
      void delivery.ack()
    },
  })
  const send = async (n: number): Promise<Response> =>
    await fetch(`${http.url}/readings`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(reading(n)),
    })
  const confirmed = new Set<string>()
  const confirm = async (response: Response): Promise<void> => {
    if (response.status === 202) confirmed.add(((await response.json()) as { eventId: string }).eventId)
  }
  const client = createIngestClient({ url: `${http.url}/readings`, backoff: { firstMs: 10, maxMs: 200, jitter: 'full' } })
  /** As a client does that is refused for a while: also a busy machine is slow for a moment. */
  const insist = async (from: number, count: number): Promise<void> => {
    for (const outcome of await client.sendMany(Array.from({ length: count }, (_, n) => reading(from + n))))
      if (outcome.status === 'accepted') confirmed.add(outcome.eventId)
  }
  try {
    await insist(0, 30)
    expect(confirmed.size).toBe(30)

    proxy.stall()
    const held = Array.from({ length: 20 }, (_, n) => send(100 + n))
    await eventually(() => expect(ingest.refusal()).toMatchObject({ code: 'OVERLOADED' }))
    const refused = await send(200)
    expect(refused.status).toBe(429)
    expect(refused.headers.get('retry-after')).toBe('1')
    expect(await refused.json()).toMatchObject({ code: 'OVERLOADED', retryable: true })
    // However many come, none of them is kept, and none is told that it was accepted.
    const flood = await Promise.all(Array.from({ length: 300 }, (_, n) => send(1_000 + n)))
    expect(new Set(flood.map(({ status }) => status))).toEqual(new Set([429]))

    proxy.heal()
    for (const response of await Promise.all(held)) await confirm(response)
    await insist(1_000, 300)
    expect(confirmed.size).toBeGreaterThanOrEqual(30 + 300)
    await eventually(() => expect([...confirmed].filter((id) => !arrived.has(id))).toEqual([]))
  } finally {
    await http.close()
    await ingest.close(AbortSignal.abort())
    await receiver.close(AbortSignal.timeout(5_000))
    await Promise.all([publisher.close(), reader.close(), admin.close()])
    await proxy.stop()
    await server.stop()
  }
}, 180_000)
