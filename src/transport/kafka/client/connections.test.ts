import { once } from 'node:events'
import { createServer, type AddressInfo, type Server } from 'node:net'
import { afterEach, expect, test, vi } from 'vitest'
import { uncaughtDuring } from '../../../../test/setup/ending-server.ts'
import { KafkaConnections, type KafkaAddress, type Request } from './connections.ts'

afterEach(() => void vi.useRealTimers())

const apiVersions = 18
const saslHandshake = 17
const saslAuthenticate = 36
const metadata = 3
const sessionLifetimeMs = 3_600_000

/** What a broker answers whose sessions end after an hour. Any other request it answers by hanging up. */
const answers: Readonly<Record<number, readonly number[]>> = {
  // Without error: one api, SaslAuthenticate up to version 1, and no throttling.
  [apiVersions]: [0, 0, ...int32(1), 0, saslAuthenticate, 0, 0, 0, 1, ...int32(0)],
  // Without error: one mechanism.
  [saslHandshake]: [0, 0, ...int32(1), 0, 5, ...Buffer.from('PLAIN')],
  // Without error, message or bytes.
  [saslAuthenticate]: [0, 0, 0xff, 0xff, ...int32(0), ...int32(0), ...int32(sessionLifetimeMs)],
}

const metadataRequest: Request = {
  purpose: 'control',
  node: undefined,
  api: 'metadataV11',
  args: [['orders'], false, false, false],
  timeoutMs: 10_000,
  what: 'metadata',
}

test('a connection that the broker closes leaves no timer for its next authentication behind', async () => {
  const { server, asked } = await serverWith(answers)
  const connections = connectionsTo(addressOf(server))
  await connections.sdk()
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] })
  await expect(connections.call(metadataRequest)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  expect(asked).toEqual([apiVersions, saslHandshake, saslAuthenticate, metadata])
  expect(vi.getTimerCount()).toBe(0)
  await connections.close()
  server.close()
})

test('credentials that the broker refuses are called that, in its own words', async () => {
  const words = Buffer.from('Invalid username or password')
  const { server } = await serverWith({
    ...answers,
    [saslAuthenticate]: [0, 58, 0, words.length, ...words, ...int32(0), ...int32(0), ...int32(0)],
  })
  const connections = connectionsTo(addressOf(server))
  await expect(connections.call(metadataRequest)).rejects.toMatchObject({
    code: 'FORBIDDEN',
    message: 'Kafka, metadata: SASL_AUTHENTICATION_FAILED (Invalid username or password). Check the credentials.',
    details: { kafka: 'SASL_AUTHENTICATION_FAILED' },
  })
  await connections.close()
  server.close()
})

test('a broker that hangs up while we authenticate has not refused the credentials', async () => {
  const { server } = await serverWith({ [apiVersions]: answers[apiVersions] ?? [] })
  const connections = connectionsTo(addressOf(server))
  await expect(connections.call(metadataRequest)).rejects.toMatchObject({ code: 'UNAVAILABLE', details: {} })
  await connections.close()
  server.close()
})

test('who cannot be connected to is named with the reason', async () => {
  const { server } = await serverWith(answers)
  const address = addressOf(server)
  server.close()
  await once(server, 'close')
  const connections = connectionsTo(address)
  await expect(connections.call(metadataRequest)).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    message: expect.stringContaining(`Connection to 127.0.0.1:${address.port} failed. connect ECONNREFUSED`) as string,
  })
  await connections.close()
})

test('a node that was named and is known is tried once', async () => {
  let visits = 0
  const server = createServer((socket) => {
    visits += 1
    socket.destroy()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const connections = connectionsTo(addressOf(server))
  connections.learn([{ nodeId: 1, ...addressOf(server) }])
  await expect(connections.call(metadataRequest)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  expect(visits).toBe(1)
  await connections.close()
  server.close()
})

test('a broker that lets a client in and hangs up in the same breath fails the call and never the process', async () => {
  const { server } = await serverWith(answers, { hangsUpAfter: saslAuthenticate })
  const connections = connectionsTo(addressOf(server))
  const uncaught = await uncaughtDuring(async () => {
    for (let call = 0; call < 20; call += 1)
      await expect(connections.call(metadataRequest)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })
  await connections.close()
  server.close()
  expect(uncaught.map(String)).toEqual([])
})

async function serverWith(
  known: typeof answers,
  { hangsUpAfter }: { readonly hangsUpAfter?: number } = {},
): Promise<{ readonly server: Server; readonly asked: readonly number[] }> {
  const asked: number[] = []
  const server = createServer((socket) => {
    socket.on('data', (request) => {
      const api = request.readInt16BE(4)
      const answer = known[api]
      asked.push(api)
      if (answer === undefined) return void socket.destroy()
      const correlationId = request.subarray(8, 12)
      socket.write(Buffer.from([...int32(answer.length + 4), ...correlationId, ...answer]))
      if (api === hangsUpAfter) socket.resetAndDestroy()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { server, asked }
}

function connectionsTo(broker: KafkaAddress): KafkaConnections {
  return new KafkaConnections({
    brokers: [broker],
    clientId: 'waybill',
    tls: undefined,
    sasl: { mechanism: 'PLAIN', username: 'u', password: 'p' },
    connectTimeoutMs: 10_000,
    addressOf: (node) => node,
  })
}

function addressOf(server: Server): KafkaAddress {
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port }
}

function int32(value: number): readonly number[] {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(value)
  return [...bytes]
}
