import { expect, onTestFinished, test, vi } from 'vitest'
import { FakeKafka } from '../../../../test/kafka/fake-kafka.ts'
import { eventually } from '../../../testing/kit/eventually.ts'
import { createFakeClock } from '../../../testing/kit/fake-clock.ts'
import { Fifo } from '../../../core/queue.ts'
import type { AckOutcome, Delivery, Receiver } from '../../port/transport.ts'
import type { KafkaClient } from '../client/kafka-client.ts'
import { kafkaError } from '../client/errors.ts'
import { kafka } from '../kafka.ts'

const never = (): Promise<never> => new Promise(() => {})

interface Receiving {
  readonly receiver: Receiver
  readonly deliveries: readonly Delivery[]
  readonly errors: readonly Error[]
}

/** Receives from a broker of which one thing is different. */
async function receive(
  broker: FakeKafka,
  {
    client = {},
    maxMessages = 10,
    ...options
  }: Pick<Parameters<typeof kafka>[0], 'clock' | 'instanceId'> & {
    readonly client?: Partial<KafkaClient>
    readonly maxMessages?: number
  },
): Promise<Receiving> {
  const deliveries: Delivery[] = []
  const errors: Error[] = []
  const transport = kafka({ brokers: ['nowhere:1'], client: () => ({ ...broker.client(), ...client }), ...options })
  const receiver = await transport.receive({
    topic: 'orders',
    consumer: 'ledger',
    maxMessages,
    maxBytes: 1_000_000,
    onDelivery: (delivery) => void deliveries.push(delivery),
    onError: (error) => void errors.push(error),
  })
  return { receiver, deliveries, errors }
}

test('a commit that is refused because another process has our name is told, and the assignment is over', async () => {
  const broker = new FakeKafka(1)
  broker.append(0, 'a')
  const taken = kafkaError('FENCED_INSTANCE_ID', 'commit of ledger')
  const client = { commitOffsets: () => Promise.reject(taken) }
  const { receiver, deliveries, errors } = await receive(broker, { client, clock: createFakeClock(), instanceId: 'pod-1' })
  await eventually(() => deliveries.length === 1)
  expect(await deliveries[0]?.ack()).toBe('lost')
  await eventually(() => expect(errors).toEqual([taken]))
  expect(broker.generation).toBe(1)
  await receiver.close()
})

test('a close that is aborted ends soon, whatever the broker does not answer', async () => {
  const broker = new FakeKafka(1)
  broker.append(0, 'a')
  broker.append(0, 'b')
  const clock = createFakeClock()
  const client: Partial<KafkaClient> = { heartbeat: never, commitOffsets: never, leaveGroup: never, close: never }
  const { receiver, deliveries } = await receive(broker, { client, clock })
  await eventually(() => deliveries.length === 2)
  const [first, second] = deliveries as readonly [Delivery, Delivery]
  const acked: Promise<AckOutcome> = first.ack()
  await clock.advance(3_000)
  const aborting = new AbortController()
  const closing = receiver.close(aborting.signal)
  await clock.advance(500)
  expect(second.lost.aborted).toBe(false)
  aborting.abort()
  await clock.advance(1_000)
  await closing
  expect(await acked).toBe('lost')
  expect(second.lost.aborted).toBe(true)
})

test('a rebalance waits for what goes on, and not for a partition that stands still', async () => {
  const broker = new FakeKafka(2)
  broker.append(0, 'a')
  broker.append(1, 'b')
  const clock = createFakeClock()
  const first = await receive(broker, { clock })
  await eventually(() => first.deliveries.length === 2)
  const [failed, going] = first.deliveries.toSorted((a, b) => partitionOf(a) - partitionOf(b)) as [Delivery, Delivery]
  failed.stall?.()
  const joining = receive(broker, { clock })
  await clock.advance(6_000)
  expect(broker.generation).toBe(1)
  void going.ack()
  await eventually(() => expect([broker.generation, broker.committed(1)]).toEqual([2, 1n]))
  expect(failed.lost.aborted).toBe(true)
  const second = await joining
  broker.append(1, 'c')
  const handed = (): readonly Delivery[] => [...first.deliveries.slice(2), ...second.deliveries]
  await eventually(() => expect(keysOf(handed()).toSorted()).toEqual(['a', 'c']))
  for (const { receiver } of [first, second]) await receiver.close(AbortSignal.abort())
})

test('a key that fills the bounds makes room for the others as soon as it is given back, not after its delay', async () => {
  const broker = new FakeKafka(2)
  for (const key of ['a', 'a', 'a', 'b']) broker.append(0, key)
  broker.append(1, 'c')
  const { receiver, deliveries } = await receive(broker, { clock: createFakeClock(), maxMessages: 2 })
  await eventually(() => deliveries.length === 2)
  // The clock stands still: no delay ever ends.
  await deliveries[0]?.nack(4_000)
  await eventually(() => expect(keysOf(deliveries).toSorted()).toEqual(['a', 'a', 'b', 'c']))
  await receiver.close(AbortSignal.abort())
})

test('keys that fail again and again leave the other keys and partitions their turns', async () => {
  const broker = new FakeKafka(2)
  for (const key of ['poison 1', 'poison 2', 'poison 3', 'good 1']) broker.append(0, key)
  broker.append(1, 'good 2')
  const clock = createFakeClock()
  const { receiver, deliveries } = await receive(broker, { clock, maxMessages: 1 })
  const good = (): readonly string[] => keysOf(deliveries).filter((key) => key.startsWith('good'))
  for (let turn = 0; turn < 100 && good().length < 2; turn += 1) {
    await eventually(() => deliveries.length === turn + 1)
    // Each attempt takes longer than the delay of the one before: somebody who failed is always due.
    await clock.advance(1_000)
    const delivery = deliveries[turn] as Delivery
    if (delivery.message.orderingKey?.startsWith('good') === true) void delivery.ack()
    else await delivery.nack(500)
  }
  expect(good()).toEqual(['good 1', 'good 2'])
  await receiver.close(AbortSignal.abort())
})

test('when everything fails, all that is given back waits on one timer, and what is due about the same time comes back in one go', async () => {
  const broker = new FakeKafka(1)
  for (let i = 0; i < 1_000; i += 1) broker.append(0, `k${i}`)
  const clock = createFakeClock()
  const { receiver, deliveries } = await receive(broker, { clock, maxMessages: 1_000 })
  await eventually(() => deliveries.length === 1_000)
  const asleep = clock.sleepers()
  const regroupings = vi.spyOn(Fifo.prototype, 'takeWhere')
  onTestFinished(() => regroupings.mockRestore())
  // The last one is due first: the timer is set anew for it, and the old one is gone.
  for (const [i, delivery] of [...deliveries].entries()) await delivery.nack(i === 999 ? 1_000 : 2_000 + i)
  expect(clock.sleepers()).toBe(asleep + 1)
  await clock.advance(3_100)
  expect(deliveries.length).toBe(2_000)
  expect(regroupings.mock.calls.length).toBeLessThan(100)
  await receiver.close(AbortSignal.abort())
})

function partitionOf({ message }: Delivery): number {
  return Number(message.position?.partition)
}

function keysOf(deliveries: readonly Delivery[]): readonly string[] {
  return deliveries.map(({ message }) => message.orderingKey ?? '')
}
