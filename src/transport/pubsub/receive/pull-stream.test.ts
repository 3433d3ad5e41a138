import { expect, onTestFinished, test, vi } from 'vitest'
import { WaybillError } from '../../../core/errors.ts'
import { seededRandom } from '../../../core/service/random.ts'
import { eventually } from '../../../testing/kit/eventually.ts'
import { createFakeClock, type FakeClock } from '../../../testing/kit/fake-clock.ts'
import type { Connection, PullDuplex, PullResponse } from '../client/connection.ts'
import { status } from '../client/errors.ts'
import { PullLoop } from './pull-stream.ts'

/** A connection that remembers what was done with it, and whose streams never say a word. */
class SilentConnection {
  readonly done: string[] = []
  isConnected = true
  streamingPull: () => PullDuplex = () => this.#stream()

  asConnection(): Connection {
    const connection: Partial<Connection> = {
      streamingPull: () => {
        // As gRPC does it.
        if (this.done.includes('close')) throw new Error('Channel has been shut down')
        this.done.push('stream')
        return this.streamingPull()
      },
      isConnected: () => this.isConnected,
      close: () => Promise.resolve(void this.done.push('close')),
    }
    return connection as Connection
  }

  #stream(): PullDuplex {
    const stream: PullDuplex = {
      write: () => this.done.push('write') > 0,
      end: () => void this.done.push('end'),
      cancel: () => void this.done.push('cancel'),
      pause: () => {},
      resume: () => {},
      on: () => stream,
    }
    return stream
  }
}

interface Pulling {
  readonly loop: PullLoop
  readonly clock: FakeClock
  readonly errors: readonly Error[]
  /** Every opening so far, under way until it is resolved. */
  readonly openings: readonly PromiseWithResolvers<Connection>[]
}

function pulling({ silentMs = 3_000 } = {}): Pulling {
  const clock = createFakeClock()
  const errors: Error[] = []
  const openings: PromiseWithResolvers<Connection>[] = []
  const loop = new PullLoop({
    open: () => {
      const opening = Promise.withResolvers<Connection>()
      openings.push(opening)
      return opening.promise
    },
    subscription: 'projects/p/subscriptions/video.events.catalog',
    leaseMs: 10_000,
    maxMessages: 10,
    maxBytes: 1_000,
    silentMs,
    callTimeoutMs: 600_000,
    clock,
    random: seededRandom(1),
    onMessages: () => {},
    onError: (error) => void errors.push(error),
  })
  onTestFinished(async () => {
    const stopped = loop.stop()
    await clock.advance(10_000)
    await stopped
    loop.disconnect()
  })
  return { loop, clock, errors, openings }
}

/** Lets a test say when each deadline that is set from now on is over. */
function deadlines(): readonly AbortController[] {
  const set: AbortController[] = []
  const timeout = vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => {
    const deadline = new AbortController()
    set.push(deadline)
    return deadline.signal
  })
  onTestFinished(() => timeout.mockRestore())
  return set
}

test('a connection that comes when one of those who wait has given it up is nobody’s, and the stream gets the next one', async () => {
  const set = deadlines()
  const { loop, clock, errors, openings } = pulling()
  void loop.start()
  set[0]?.abort()
  await eventually(() => errors.length === 1)
  // While the stream backs off, an ack opens a connection; the stream joins it later.
  const ack = loop.connection(new AbortController().signal)
  await clock.advance(1_000)
  set[1]?.abort()
  await expect(ack).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  const late = new SilentConnection()
  openings[1]?.resolve(late.asConnection())
  await eventually(() => expect(late.done).toEqual(['close']))
  const next = new SilentConnection()
  await clock.advance(10_000)
  openings[2]?.resolve(next.asConnection())
  await eventually(() => expect(next.done).toEqual(['stream', 'write']))
})

test('a stream that cannot be opened is told and tried again', async () => {
  const { loop, clock, errors, openings } = pulling()
  void loop.start()
  const connection = new SilentConnection()
  connection.streamingPull = () => {
    throw new Error('no stream')
  }
  openings[0]?.resolve(connection.asConnection())
  await eventually(() => expect(errors).toMatchObject([{ message: expect.stringContaining('no stream') }]))
  await clock.advance(1_000)
  expect(errors.length).toBeGreaterThan(1)
})

test('who starts without the package of the client learns that at once', async () => {
  const { loop, errors, openings } = pulling()
  const started = loop.start()
  openings[0]?.reject(new WaybillError('MISSING_PACKAGE', 'Install @google-cloud/pubsub.'))
  await expect(started).rejects.toMatchObject({ code: 'MISSING_PACKAGE' })
  expect(errors).toEqual([])
})

test('a stream that nobody refuses is accepted when its connection has been answered, and not before', async () => {
  const { loop, clock, openings } = pulling({ silentMs: 600_000 })
  const connection = new SilentConnection()
  connection.isConnected = false
  let isAccepted = false
  void loop.start().then(() => (isAccepted = true))
  openings[0]?.resolve(connection.asConnection())
  await eventually(() => connection.done.includes('write'))
  await clock.advance(60_000)
  expect(isAccepted).toBe(false)
  connection.isConnected = true
  await clock.advance(3_000)
  expect(isAccepted).toBe(true)
})

test('who is told to stop as the connection comes opens no stream', async () => {
  const { loop, openings } = pulling()
  const connection = new SilentConnection()
  const stopped = loop.connection(new AbortController().signal).then(() => loop.stop())
  const started = loop.start()
  openings[0]?.resolve(connection.asConnection())
  await Promise.all([started, stopped])
  expect(connection.done).toEqual([])
})

test('a stream that is being left when its sign of life is due is left once', async () => {
  const { loop, clock, openings } = pulling()
  const connection = new SilentConnection()
  void loop.start()
  openings[0]?.resolve(connection.asConnection())
  await eventually(() => connection.done.includes('write'))
  const stopped = loop.stop()
  await clock.advance(1_500)
  await clock.advance(500)
  await stopped
  expect(connection.done).toEqual(['stream', 'write', 'end', 'cancel'])
})

interface Ending {
  readonly afterMs: number
  /** @default 0, which is no error */
  readonly code?: number
  /** What comes before, as soon as the stream is open. */
  readonly first?: PullResponse
}

/** The first response of the real service, before there is any message. */
const properties: PullResponse = { receivedMessages: [], subscriptionProperties: { exactlyOnceDeliveryEnabled: false } }

const someMessage: PullResponse = {
  receivedMessages: [
    {
      ackId: 'a1',
      deliveryAttempt: 0,
      message: { messageId: '1', orderingKey: '', attributes: {}, data: new Uint8Array(1), publishTime: null },
    },
  ],
}

/** Has the service end each stream so, the first of them is number 1, and counts them. */
function endedStreams({ loop, clock, openings }: Pulling, ending: (number: number) => Ending): () => number {
  const connection = new SilentConnection()
  connection.streamingPull = () => {
    const { afterMs, code = 0, first } = ending(connection.done.length)
    const stream: PullDuplex = {
      write: () => true,
      end: () => {},
      cancel: () => {},
      pause: () => {},
      resume: () => {},
      on: ((event: string, listener: (said: unknown) => void) => {
        if (event === 'data' && first !== undefined) queueMicrotask(() => listener(first))
        if (event === 'status') void clock.sleep(afterMs).then(() => listener({ code, details: 'ended' }))
        return stream
      }) as PullDuplex['on'],
    }
    return stream
  }
  void loop.start()
  openings[0]?.resolve(connection.asConnection())
  return () => connection.done.length
}

test.each([
  ['without a word', undefined],
  ['after an empty response', properties],
])('streams that the service ends at once, %s, are opened ever more slowly, and that is told', async (_name, first) => {
  const world = pulling()
  const opened = endedStreams(world, () => ({ afterMs: 1, ...(first === undefined ? {} : { first }) }))
  await world.clock.advance(1)
  expect({ opened: opened(), errors: world.errors }).toEqual({ opened: 1, errors: [] })
  await world.clock.advance(60_000)
  expect(opened()).toBeGreaterThan(5)
  expect(opened()).toBeLessThan(25)
  expect(world.errors).toHaveLength(opened() - 4)
  expect(world.errors[0]).toMatchObject({ code: 'UNAVAILABLE', message: expect.stringContaining('ended 5 streams in a row') })
})

test('a stream that the service ends once messages have come is opened again at once, and nothing is told', async () => {
  const world = pulling()
  const opened = endedStreams(world, () => ({ afterMs: 10, first: someMessage }))
  await world.clock.advance(1_000)
  expect({ opened: opened(), errors: world.errors }).toEqual({ opened: 101, errors: [] })
})

test('a stream that the service ends after half an hour in which nothing came is opened again at once, and nothing is told', async () => {
  const world = pulling({ silentMs: 3_600_000 })
  const opened = endedStreams(world, () => ({ afterMs: 1_800_000 }))
  await world.clock.advance(36_000_000)
  expect({ opened: opened(), errors: world.errors }).toEqual({ opened: 21, errors: [] })
})

test('a stream that fails after half an hour in which nothing came is opened again soon, however often', async () => {
  const world = pulling({ silentMs: 3_600_000 })
  const opened = endedStreams(world, () => ({ afterMs: 1_800_000, code: status.unavailable, first: properties }))
  await world.clock.advance(36_000_000 + 20 * 100)
  expect({ opened: opened(), told: world.errors.length }).toEqual({ opened: 21, told: 20 })
})

test('streams that fail are not among the streams in a row that are told to have ended without an error', async () => {
  const world = pulling()
  endedStreams(world, (number) => ({ afterMs: 1, code: number <= 6 ? status.unavailable : status.ok }))
  await world.clock.advance(120_000)
  const told = world.errors.map(({ message }) => /ended \d+ streams/.exec(message)?.[0])
  expect(told.slice(5, 8)).toEqual([undefined, 'ended 5 streams', 'ended 6 streams'])
})

/** A connection whose streams say nothing but farewell, once we have ended our half of them. */
function politeConnection(): Connection {
  const connection = new SilentConnection()
  connection.streamingPull = () => {
    let farewell = (): void => {}
    const stream: PullDuplex = {
      write: () => true,
      end: () => queueMicrotask(() => farewell()),
      cancel: () => {},
      pause: () => {},
      resume: () => {},
      on: ((event: string, listener: (said: unknown) => void) => {
        if (event === 'status') farewell = () => listener({ code: status.ok, details: '' })
        return stream
      }) as PullDuplex['on'],
    }
    return stream
  }
  return connection.asConnection()
}

test('a silent stream that ends as we leave it is replaced at once, on a new connection, and nothing is told', async () => {
  const { loop, clock, errors, openings } = pulling({ silentMs: 3_000 })
  void loop.start()
  for (let replaced = 1; replaced <= 10; replaced += 1) {
    openings.at(-1)?.resolve(politeConnection())
    await clock.advance(3_000)
    expect({ openings: openings.length, errors }).toEqual({ openings: replaced + 1, errors: [] })
  }
})
