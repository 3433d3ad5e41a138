/**
 * A broker with partitions, as a consumer group sees one: logs with offsets, and members that tests assign partitions to.
 *
 * It keeps no offsets of its own: whoever gets a partition says where to begin, or begins at 0. A member that loses one may
 * be told (`lost`), or not, as a process that was stopped for too long.
 */
import type { Delivery, IncomingMessage, OutgoingMessage, ReceiveOptions, Transport } from '../../src/transport/port/transport.ts'

interface Member {
  readonly options: ReceiveOptions
  readonly partitions: Map<string, { next: bigint; readonly lost: AbortController }>
  inHand: number
  closed: boolean
}

export class PartitionedBroker implements Pick<Transport, 'receive'> {
  readonly members: Member[] = []
  /** Every delivery that was given back to the broker. */
  readonly givenBack: string[] = []
  /** Which topic the logs are of; undefined for a broker that does not say. */
  topicId: string | undefined
  readonly #logs = new Map<string, Map<bigint, OutgoingMessage>>()

  /** Appends to a partition; a hole leaves offsets out before each message. */
  append(partition: string, messages: readonly OutgoingMessage[], { hole = 0 }: { readonly hole?: number } = {}): void {
    const log = this.#logs.get(partition) ?? new Map<bigint, OutgoingMessage>()
    this.#logs.set(partition, log)
    for (const message of messages) log.set(this.end(partition) + BigInt(hole), message)
    for (const member of this.members) this.#deliver(member)
  }

  /** Deletes the topic, and makes it again. Nobody is told. */
  recreate(topicId: string): void {
    this.#logs.clear()
    this.topicId = topicId
  }

  /** One behind the last offset. */
  end(partition: string): bigint {
    return ([...(this.#logs.get(partition)?.keys() ?? [])].at(-1) ?? -1n) + 1n
  }

  receive(options: ReceiveOptions): Promise<{ close(): Promise<void> }> {
    const member: Member = { options, partitions: new Map(), inHand: 0, closed: false }
    this.members.push(member)
    return Promise.resolve({
      close: () => {
        member.closed = true
        return Promise.resolve()
      },
    })
  }

  /** Gives partitions to a member. Unless they are told, those who had them go on with what they have in hand. */
  async assign(
    member: Member | undefined,
    partitions: readonly string[],
    { tell = true }: { readonly tell?: boolean } = {},
  ): Promise<void> {
    if (member === undefined) throw new Error('There is no such member.')
    for (const other of this.members) {
      for (const partition of partitions) {
        if (tell) other.partitions.get(partition)?.lost.abort()
        other.partitions.delete(partition)
      }
    }
    const from = (await member.options.resumeFrom?.(partitions, this.topicId)) ?? new Map<string, bigint>()
    for (const partition of partitions) {
      const start = from.get(partition) ?? 'earliest'
      member.partitions.set(partition, { next: start === 'earliest' ? 0n : start, lost: new AbortController() })
    }
    this.#deliver(member)
  }

  #deliver(member: Member): void {
    for (const [partition, at] of member.partitions) {
      for (const [offset, message] of this.#logs.get(partition) ?? []) {
        if (offset < at.next || member.closed || member.inHand >= member.options.maxMessages) continue
        at.next = offset + 1n
        this.#hand(member, { partition, offset, message, lost: at.lost.signal })
      }
    }
  }

  #hand(
    member: Member,
    of: {
      readonly partition: string
      readonly offset: bigint
      readonly message: OutgoingMessage
      readonly lost: AbortSignal
    },
  ): void {
    const { partition, offset, lost } = of
    const message: IncomingMessage = {
      ...of.message,
      messageId: `${partition}/${offset}`,
      publishedAtMs: 0,
      deliveryAttempt: undefined,
      position: { partition, offset },
    }
    member.inHand += 1
    const settle = (): void => {
      member.inHand -= 1
      setImmediate(() => this.#deliver(member))
    }
    const delivery: Delivery = {
      message,
      lost,
      ack: () => {
        settle()
        return Promise.resolve(lost.aborted ? 'lost' : 'confirmed')
      },
      nack: () => {
        this.givenBack.push(message.messageId)
        settle()
        return Promise.resolve()
      },
    }
    member.options.onDelivery(delivery)
  }
}
