/**
 * How much of gRPC's own speed the local Pub/Sub server leaves: publish → StreamingPull → acknowledge over bare gRPC, beside
 * a server that returns the same requests unread. Both servers share one process, the clients this one; requests carry 1,000
 * messages of 300 bytes. The heap of the server is compared after each of three fill-and-acknowledge cycles.
 */
import { Client, credentials } from '@grpc/grpc-js'
import { type Child, startChild } from '../src/testing/process/child.ts'
import { WireReader } from '../packages/pubsub-server/src/protocol/wire.ts'
import { loadProtocol, type Protocol } from '../packages/pubsub-server/src/protocol/protocol.ts'
import { type Bench, defineBench } from './harness.ts'

const batchMessages = 1_000
const payloadBytes = 300
const inFlight = 4
const topic = 'projects/bench/topics/bench'
const subscription = 'projects/bench/subscriptions/bench'

interface Context {
  readonly batches: number
  readonly child: Child
  readonly echo: Client
  readonly pubsub: Client
  readonly request: Buffer
  readonly protocol: Protocol
}

export const bench: Bench = defineBench<Context>({
  name: 'pubsub-server',
  summary: 'publish → StreamingPull → ack against a bare gRPC echo, and the heap over fill-and-ack cycles',
  unit: 'messages/s (heap: last cycle ÷ first)',
  setup: async ({ quick }) => {
    const child = startChild(new URL('pubsub-server-child.ts', import.meta.url))
    const { echoPort, pubsubPort } = await child.message<{ echoPort: number; pubsubPort: number }>(
      (message) => 'echoPort' in message,
    )
    // Both clients take in as much as comes: with the default window of 64 KiB the bench would measure round trips.
    const options = { 'grpc.max_receive_message_length': -1, 'grpc-node.flow_control_window': 4 * 1024 * 1024 }
    const open = (port: number): Client => new Client(`127.0.0.1:${port}`, credentials.createInsecure(), options)
    const protocol = loadProtocol()
    const messages = Array.from({ length: batchMessages }, () => ({ data: Buffer.alloc(payloadBytes, 7) }))
    const request = protocol.codec('google.pubsub.v1.PublishRequest').encode({ topic, messages })
    const pubsub = open(pubsubPort)
    await call(
      pubsub,
      '/google.pubsub.v1.Publisher/CreateTopic',
      protocol.codec('google.pubsub.v1.Topic').encode({ name: topic }),
    )
    const given = protocol.codec('google.pubsub.v1.Subscription').encode({ name: subscription, topic, ackDeadlineSeconds: 600 })
    await call(pubsub, '/google.pubsub.v1.Subscriber/CreateSubscription', given)
    return { batches: quick ? 30 : 200, child, echo: open(echoPort), pubsub, request, protocol }
  },
  close: async ({ child, echo, pubsub }) => {
    echo.close()
    pubsub.close()
    await child.kill()
  },
  contenders: {
    echo: async ({ batches, echo, request }) =>
      perSecond(batches, () => callAll(batches, () => call(echo, '/bench.Echo/Echo', request))),
    'publish → pull → ack': async (context) => perSecond(context.batches, () => publishAndAck(context)),
    'heap, last cycle ÷ first': async (context) => {
      const heaps: number[] = []
      for (let cycle = 0; cycle < 3; cycle += 1) {
        await callAll(context.batches, () => publish(context))
        await receiveAndAck(context)
        heaps.push(await heapBytes(context.child))
      }
      return Math.max(...heaps) / Math.min(...heaps)
    },
  },
  bars: [
    {
      name: 'publish → pull → ack ÷ echo',
      target: 0.4,
      direction: 'at-least',
      of: (sample) => sample('publish → pull → ack') / sample('echo'),
    },
    { name: 'heap over three cycles', target: 1.1, direction: 'at-most', of: (sample) => sample('heap, last cycle ÷ first') },
  ],
})

async function perSecond(batches: number, work: () => Promise<void>): Promise<number> {
  const startedAt = performance.now()
  await work()
  return (batches * batchMessages) / ((performance.now() - startedAt) / 1000)
}

async function publishAndAck(context: Context): Promise<void> {
  await Promise.all([callAll(context.batches, () => publish(context)), receiveAndAck(context)])
}

function publish({ pubsub, request }: Context): Promise<Buffer> {
  return call(pubsub, '/google.pubsub.v1.Publisher/Publish', request)
}

/** Takes and acknowledges every message of one round; resolves when the server has settled them all. */
async function receiveAndAck({ pubsub, protocol, batches }: Context): Promise<void> {
  const stream = pubsub.makeBidiStreamRequest('/google.pubsub.v1.Subscriber/StreamingPull', asIs, asIs)
  stream.on('error', () => {})
  const first = protocol.codec('google.pubsub.v1.StreamingPullRequest').encode({ subscription, streamAckDeadlineSeconds: 600 })
  stream.write(first)
  let received = 0
  await new Promise<void>((resolve) => {
    stream.on('data', (response: Buffer) => {
      const acks = acksOf(response)
      received += acks.length / ackFieldBytes
      stream.write(acks)
      if (received >= batches * batchMessages) resolve()
    })
  })
  await new Promise<void>((resolve) => {
    stream.on('end', resolve)
    stream.end()
  })
}

const ackFieldBytes = 18

/** The acknowledgement ids of a response, as the encoded fields of a request that returns them. */
function acksOf(response: Buffer): Buffer {
  const acks = Buffer.allocUnsafe(response.length)
  const reader = new WireReader(response)
  let at = 0
  while (reader.hasMore()) {
    const tag = reader.varint()
    if (tag !== 0x0a) {
      reader.skip(tag & 7)
      continue
    }
    const end = reader.lengthEnd()
    acks[at] = 0x12
    acks[at + 1] = 16
    response.copy(acks, at + 2, reader.position + 2, reader.position + 18)
    at += ackFieldBytes
    reader.position = end
  }
  return acks.subarray(0, at)
}

async function heapBytes(child: Child): Promise<number> {
  const count = heapAnswers.get(child) ?? 0
  heapAnswers.set(child, count + 1)
  let seen = 0
  child.send('heap')
  const answer = await child.message<{ heapBytes: number }>((message) => 'heapBytes' in message && seen++ === count)
  return answer.heapBytes
}

/** How many answers each child has given; a child's messages are kept from the first. */
const heapAnswers = new WeakMap<Child, number>()

async function callAll(times: number, one: () => Promise<unknown>): Promise<void> {
  let left = times
  const worker = async (): Promise<void> => {
    while (left-- > 0) await one()
  }
  await Promise.all(Array.from({ length: inFlight }, worker))
}

function call(client: Client, path: string, request: Buffer): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(path, asIs, asIs, request, (error, response) =>
      error === null && response !== undefined ? resolve(response) : reject(error ?? new Error('no response')),
    )
  })
}

function asIs(bytes: Buffer): Buffer {
  return bytes
}
