import { createServer, type AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { uncaughtDuring } from '../../../../test/setup/ending-server.ts'
import { systemClock, type Clock } from '../../../core/service/clock.ts'
import { eventually } from '../../../testing/kit/eventually.ts'
import { pubsub } from '../pubsub.ts'

const never = (): Promise<never> => new Promise(() => {})
/** Waits are over at once. */
const instant: Clock = { ...systemClock, sleep: (_, signal) => systemClock.sleep(0, signal) }
const message = { topic: 'video.events', orderingKey: 'a', attributes: { a: '1' }, body: Buffer.from('1') }
const maySend = (): boolean => true

test('credentials that never come keep nobody: neither a publish that is given up, nor the end', async () => {
  const clientOptions = { auth: { getUniverseDomain: never, getClient: never } }
  const transport = pubsub({ projectId: 'p', apiEndpoint: '127.0.0.1:1', clientOptions, publishTimeoutMs: 600_000 })
  const given = new AbortController()
  const publishing = transport.publish([message], { signal: given.signal, maySend })
  given.abort()
  expect(await publishing).toMatchObject([{ status: expect.stringMatching(/^(unavailable|not-sent)$/) }])
  const late = pubsub({ projectId: 'p', apiEndpoint: '127.0.0.1:1', clientOptions, publishTimeoutMs: 20 })
  expect(await late.publish([message], { signal: new AbortController().signal, maySend })).toMatchObject([
    { status: 'unavailable', error: { message: expect.stringContaining('did not come in time') } },
  ])
  await Promise.all([transport.close(), late.close()])
})

test('a receiver whose credentials never come says so again and again, and can be closed', async () => {
  const clientOptions = { auth: { getUniverseDomain: never, getClient: never } }
  const transport = pubsub({ projectId: 'p', apiEndpoint: '127.0.0.1:1', clientOptions, callTimeoutMs: 20, clock: instant })
  const errors: Error[] = []
  const receiving = transport.receive({
    topic: 'video.events',
    consumer: 'catalog',
    maxMessages: 1,
    maxBytes: 1_000,
    onDelivery: () => {},
    onError: (error) => void errors.push(error),
  })
  await eventually(() => errors.length >= 2)
  expect(errors[0]).toMatchObject({ code: 'UNAVAILABLE', message: expect.stringContaining('did not come in time') })
  await transport.close()
  await receiving
})

test('a receiver that waits for credentials can be closed while it waits', async () => {
  const asked = Promise.withResolvers<void>()
  const getUniverseDomain = (): Promise<never> => {
    asked.resolve()
    return never()
  }
  const clientOptions = { auth: { getUniverseDomain, getClient: never } }
  const transport = pubsub({ projectId: 'p', apiEndpoint: '127.0.0.1:1', clientOptions, callTimeoutMs: 600_000 })
  const ignore = (): void => {}
  const bounds = { maxMessages: 1, maxBytes: 1_000 }
  const receiving = transport.receive({
    topic: 'video.events',
    consumer: 'catalog',
    ...bounds,
    onDelivery: ignore,
    onError: ignore,
  })
  await asked.promise
  await transport.close()
  await receiving
})

test('a name that no topic can have is the fault of the message, and not an outage', async () => {
  const transport = pubsub({ projectId: 'p', emulatorHost: '127.0.0.1:1' })
  const signal = new AbortController().signal
  for (const topic of ['order events', 'google-orders'])
    expect(await transport.publish([{ ...message, topic }], { signal, maySend })).toMatchObject([{ status: 'rejected' }])
  await transport.close()
})

test('a service that hangs up on each connection fails the calls and never the process', async () => {
  const server = createServer((socket) => void socket.on('error', () => {}).once('data', () => socket.resetAndDestroy()))
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  const emulatorHost = `127.0.0.1:${(server.address() as AddressInfo).port}`
  const transport = pubsub({ projectId: 'p', emulatorHost, callTimeoutMs: 500, publishTimeoutMs: 500, clock: instant })
  const errors: Error[] = []
  const bounds = { topic: 'video.events', consumer: 'catalog', maxMessages: 1, maxBytes: 1_000, onDelivery: () => {} }
  const uncaught = await uncaughtDuring(async () => {
    const receiving = transport.receive({ ...bounds, onError: (error) => void errors.push(error) })
    expect(await transport.publish([message], { signal: new AbortController().signal, maySend })).toMatchObject([
      { status: 'unavailable' },
    ])
    await eventually(() => errors.length >= 3)
    await transport.close()
    await receiving
  })
  server.close()
  expect(uncaught.map(String)).toEqual([])
})
