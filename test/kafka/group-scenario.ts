/**
 * Two members of a group under everything that goes wrong with commits: records settled out of order, one given back, a member
 * that joins while work is in hand, and one that is thrown out with work in hand. What was committed is watched throughout.
 *
 * A mutant changes one thing between the members and the broker, or between the members and their handlers.
 */
import { seededRandom } from '../../src/core/service/random.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { KafkaClient } from '../../src/transport/kafka/client/kafka-client.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import type { Delivery, Receiver } from '../../src/transport/port/transport.ts'
import { CommitWatch } from './commit-watch.ts'
import { FakeKafka } from './fake-kafka.ts'

export interface GroupMutant {
  readonly name: string
  /** What gives it away. */
  readonly found: RegExp
  /** What a broken client does. */
  readonly client?: (client: KafkaClient, broker: FakeKafka) => KafkaClient
  /** What a broken consumer does with a delivery before its effect is in the database. */
  readonly onDelivery?: (delivery: Delivery) => void
}

const perPartition = 30
const partitions = [0, 1]

export async function groupScenario(mutant: Omit<GroupMutant, 'found'> = { name: 'none' }): Promise<readonly string[]> {
  const broker = new FakeKafka(partitions.length)
  const watch = new CommitWatch()
  const watched = (): KafkaClient => {
    const client = broker.client()
    const commit = client.commitOffsets
    const watching: KafkaClient = {
      ...client,
      commitOffsets: async (request) => {
        const before = broker.commits.length
        await commit(request)
        for (const each of broker.commits.slice(before)) watch.committed(each)
      },
    }
    return mutant.client?.(watching, broker) ?? watching
  }
  const hands: Delivery[] = []
  const join = async (): Promise<Receiver> => {
    const times = { heartbeatMs: 5, sessionTimeoutMs: 60_000, fetchMaxWaitMs: 20 }
    const transport = kafka({ brokers: ['nowhere:1'], client: watched, ...times })
    const onDelivery = (delivery: Delivery): void => {
      mutant.onDelivery?.(delivery)
      hands.push(delivery)
    }
    const onError = (): void => {}
    return transport.receive({ topic: 'orders', consumer: 'ledger', maxMessages: 100, maxBytes: 1_000_000, onDelivery, onError })
  }
  /** The database commits the effect; then, and only then, the delivery is acknowledged. */
  const process = async (delivery: Delivery | undefined): Promise<void> => {
    const { partition, offset } = delivery?.message.position ?? { partition: '', offset: 0n }
    if (delivery === undefined || delivery.lost.aborted) return
    watch.processed(Number(partition), offset)
    await delivery.ack()
  }
  const inHand = (): Delivery[] => hands.splice(0).filter(({ lost }) => !lost.aborted)

  for (const partition of partitions) for (let i = 0; i < perPartition; i += 1) broker.append(partition, `k${i % 5}`)
  const first = await join()
  await eventually(() => hands.length === perPartition * partitions.length)
  const [poison, ...others] = inHand()
  const random = seededRandom(3)
  const shuffled = others.map((each) => ({ each, at: random.next() })).toSorted((a, b) => a.at - b.at)
  // Everything but the first record of a partition, out of order: nothing of that partition may be committed.
  const settled = shuffled.slice(0, 40).map(({ each }) => process(each))
  await poison?.nack(1)
  await Promise.all(settled)
  // A second member wants its share while the rest is still in hand.
  const joining = join()
  await eventually(() => broker.memberIds().length === 2)
  const rest = shuffled.slice(40).map(({ each }) => each)
  await Promise.all([...rest, ...inHand()].map(process))
  const second = await joining
  await workOff(
    () => inHand(),
    process,
    () => partitions.every((each) => broker.committed(each) === BigInt(perPartition)),
  )
  // With new work in hand, a member is thrown out; it does not know yet, and finishes what it has.
  for (const partition of partitions) for (let i = 0; i < 10; i += 1) broker.append(partition, `k${i}`)
  await eventually(() => hands.length >= 20)
  const old = hands.splice(0)
  broker.expel(broker.memberIds()[0] as string)
  await Promise.all(old.map(process))
  await workOff(
    () => inHand(),
    process,
    () => partitions.every((each) => broker.committed(each) === BigInt(perPartition + 10)),
  )
  await Promise.all([first.close(AbortSignal.abort()), second.close(AbortSignal.abort())])
  return watch.violations
}

async function workOff(
  take: () => readonly Delivery[],
  process: (delivery: Delivery) => Promise<void>,
  isDone: () => boolean,
): Promise<void> {
  await eventually(async () => {
    await Promise.all(take().map(process))
    return isDone()
  })
}
