import { expect, test } from 'vitest'
import { pubsub } from './pubsub.ts'

const never = (): Promise<never> => new Promise(() => {})
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

test('a name that no topic can have is the fault of the message, and not an outage', async () => {
  const transport = pubsub({ projectId: 'p', emulatorHost: '127.0.0.1:1' })
  const signal = new AbortController().signal
  for (const topic of ['order events', 'google-orders'])
    expect(await transport.publish([{ ...message, topic }], { signal, maySend })).toMatchObject([{ status: 'rejected' }])
  await transport.close()
})
