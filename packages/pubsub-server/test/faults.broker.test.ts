/** Faults on purpose: each strikes as asked for, none breaks a promise, and all can be switched while clients work. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { eventually } from '../../../src/testing/kit/eventually.ts'
import { data, openHarness } from './harness.ts'
import type { Harness } from './harness.ts'
import { openStream } from './raw-stream.ts'

let h: Harness

beforeEach(async () => {
  h = await openHarness({ seed: 'faults' })
})

afterEach(async () => h.close())

test('duplicate: a message comes twice, never to an exactly-once subscription', async () => {
  const { topic, subscription } = await h.pair()
  const { subscription: exact } = await h.pair({ topic, enableExactlyOnceDelivery: true })
  h.server.faults.set({ duplicate: 1 })
  using stream = openStream(h, { subscription })
  using exactStream = openStream(h, { subscription: exact })
  await h.publish(topic, ['a', 'b'])
  expect(data(await stream.take(4))).toEqual(['a', 'a', 'b', 'b'])
  expect(data(await exactStream.take(2))).toEqual(['a', 'b'])
  expect(h.server.faults.fired.duplicate).toBe(2)
})

test('delay: a message is held back for as long as asked, and its key with it', async () => {
  const { topic, subscription } = await h.pair({ enableMessageOrdering: true })
  h.server.faults.set({ delay: 1, delayMs: 5_000 })
  await h.publish(topic, ['1'], 'key')
  h.server.faults.clear()
  await h.publish(topic, ['2'], 'key')
  expect(await h.pull(subscription)).toEqual([])
  await h.clock.advance(5_020)
  expect(data(await h.pull(subscription))).toEqual(['1', '2'])
})

test('dropAcks: the acknowledgement is answered and forgotten; exactly-once is told to try again', async () => {
  const { topic, subscription } = await h.pair()
  const { subscription: exact } = await h.pair({ topic, enableExactlyOnceDelivery: true })
  await h.publish(topic, ['a'])
  h.server.faults.set({ dropAcks: 1 })
  await h.ack(subscription, await h.pull(subscription))
  const [received] = await h.pull(exact)
  using stream = openStream(h, { subscription: exact })
  stream.write({ ackIds: [received?.ackId ?? ''] })
  await eventually(() => expect(stream.confirmed()).toMatchObject({ temporaryFailedAckIds: [received?.ackId] }))
  h.server.faults.clear()
  await h.clock.advance(11_000)
  expect(data(await h.pull(subscription))).toEqual(['a'])
})

test('reorder: across keys, never within one', async () => {
  const { topic, subscription } = await h.pair({ enableMessageOrdering: true })
  h.server.faults.set({ reorder: 1 })
  for (let number = 1; number <= 30; number += 1) await h.publish(topic, [`${number % 6}:${number}`], `key${number % 6}`)
  const received = data(await h.pull(subscription))
  expect(received).toHaveLength(30)
  const inOrder = (values: readonly string[]): number[] =>
    values.map((value) => Number(value.split(':')[1])).toSorted((a, b) => a - b)
  expect(received[0]).not.toBe('1:1')
  for (let key = 0; key < 6; key += 1) {
    const own = received.filter((value) => value.startsWith(`${key}:`))
    expect(own.map((value) => Number(value.split(':')[1]))).toEqual(inOrder(own))
  }
})

test('publishError: the messages are stored although the publisher is told of a failure', async () => {
  const { topic, subscription } = await h.pair()
  h.server.faults.set({ publishError: 1 })
  const request = { topic, messages: [{ data: Buffer.from('a') }] }
  const once = { retry: { retryCodes: [], backoffSettings: {} } } as never
  const codes: unknown[] = []
  for (let call = 0; call < 10; call += 1) {
    await h.publisher.publish(request, once).catch((error: unknown) => codes.push((error as { code: number }).code))
  }
  expect(codes).toHaveLength(10)
  expect(new Set(codes)).toEqual(new Set([4, 14]))
  expect(await h.pull(subscription)).toHaveLength(10)
})

test('refuse: calls that move messages fail with UNAVAILABLE, others do not', async () => {
  const { topic, subscription } = await h.pair()
  h.server.faults.set({ refuse: 1 })
  const once = { retry: { retryCodes: [], backoffSettings: {} } } as never
  await expect(h.publisher.publish({ topic, messages: [{ data: Buffer.from('a') }] }, once)).rejects.toMatchObject({ code: 14 })
  await expect(openStream(h, { subscription }).ended).rejects.toMatchObject({ code: 14 })
  await expect(h.publisher.getTopic({ topic })).resolves.toBeDefined()
  h.server.faults.clear()
  expect(await h.pull(subscription)).toEqual([])
})

test('cutStreams: a stream ends after what it sent, and its leases run on', async () => {
  const { topic, subscription } = await h.pair()
  h.server.faults.set({ cutStreams: 1 })
  using stream = openStream(h, { subscription })
  await h.publish(topic, ['a'])
  await expect(stream.ended).rejects.toMatchObject({ code: 14 })
  expect(await h.pull(subscription)).toEqual([])
  await h.ack(subscription, await stream.take(1))
  expect(h.server.stats().subscriptions[0]?.unackedMessages).toBe(0)
})

test('the admin endpoint shows and switches faults, cuts streams, and serves loopback names only', async () => {
  const { subscription } = await h.pair()
  using stream = openStream(h, { subscription })
  await eventually(() => h.server.stats().subscriptions[0]?.streams === 1)
  const { adminUrl } = h.server
  const ask = async (method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }> => {
    const response = await fetch(`${adminUrl}${path}`, { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) })
    return { status: response.status, body: await response.json() }
  }
  expect(await ask('PUT', '/faults', { duplicate: 0.5 })).toMatchObject({ status: 200, body: { options: { duplicate: 0.5 } } })
  expect(h.server.faults.options).toEqual({ duplicate: 0.5 })
  expect(await ask('PUT', '/faults', { duplicate: 2 })).toMatchObject({ status: 400 })
  expect(await ask('PUT', '/faults', { explode: 1 })).toMatchObject({ status: 400 })
  expect(await ask('DELETE', '/faults')).toMatchObject({ body: { options: {} } })
  expect(await ask('GET', '/faults')).toMatchObject({ body: { fired: { duplicate: 0 } } })
  expect(await ask('GET', '/stats')).toMatchObject({ body: { subscriptions: [{ streams: 1 }] } })
  for (const headers of [
    { origin: 'https://evil.example' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
  ]) {
    const foreign = await fetch(`${adminUrl}/cut-streams`, { method: 'POST', headers: headers as Record<string, string> })
    expect([foreign.status, foreign.headers.get('x-content-type-options')]).toEqual([403, 'nosniff'])
  }
  expect(await ask('POST', '/cut-streams')).toMatchObject({ body: { cut: 1 } })
  await expect(stream.ended).rejects.toMatchObject({ code: 14 })
  expect(await ask('GET', '/other')).toMatchObject({ status: 404 })
  expect(await statusFor(adminUrl, 'evil.example')).toBe(403)
})

/** `fetch` does not let a caller choose the Host header. */
async function statusFor(url: string, host: string): Promise<number | undefined> {
  const { request } = await import('node:http')
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/stats`, { headers: { host } }, (response) => {
      response.resume()
      resolve(response.statusCode)
    })
    sent.once('error', reject)
    sent.end()
  })
}
