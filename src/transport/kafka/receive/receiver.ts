/**
 * Receives from one topic for one consumer: a member of the consumer's group that reads what it is assigned.
 *
 * Whatever takes partitions away, the order is the same: hand out nothing new, wait for what is in hand, commit it, and only
 * then let go. The wait is bounded, so that one slow handler does not stop the group, and the group waits for no partition that
 * stands still; what is in hand after that is lost, and comes again to the next owner.
 */
import type { Clock } from '../../../core/service/clock.ts'
import { WaybillError } from '../../../core/errors.ts'
import type { Random } from '../../../core/service/random.ts'
import type { SignalBus } from '../../../core/signals.ts'
import type { Receiver, ReceiveOptions } from '../../port/transport.ts'
import { AssignmentReading } from './assignment-reader.ts'
import { GroupMember, type Assignment } from './group-member.ts'
import type { KafkaClient } from '../client/kafka-client.ts'
import { isPermanent } from '../client/errors.ts'
import { unlessAborted, unlessLate } from '../../../core/service/abort.ts'

export interface KafkaReceiverOptions extends ReceiveOptions {
  readonly client: KafkaClient
  readonly group: string
  readonly instanceId: string | undefined
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
  readonly heartbeatMs: number
  readonly drainTimeoutMs: number
  readonly metadataMaxAgeMs: number
  readonly maxWindow: number
  readonly fetchMaxWaitMs: number
  readonly fetchMaxBytes: number
  readonly lagMs: number
  readonly clock: Clock
  readonly random: Random
  readonly signals: SignalBus
}

/** How long an ack waits for those before it in its partition. */
const ackWaitMs = 1_000
/** How long letting go waits for a last commit. */
const flushMs = 5_000
/** How long a close that was aborted still tries to leave the group and to end its connections. */
const abortedMs = 1_000

export class KafkaReceiver implements Receiver {
  readonly topic: string
  readonly group: string
  readonly #options: KafkaReceiverOptions
  readonly #member: GroupMember
  readonly #aborting = new AbortController()
  readonly #closed = new AbortController()
  readonly #opened = Promise.withResolvers<void>()
  #reading: AssignmentReading | undefined
  #running: Promise<void> = Promise.resolve()
  #isOpen = false
  #isClosing = false
  #closing: Promise<void> | undefined

  constructor(options: KafkaReceiverOptions) {
    this.topic = options.topic
    this.group = options.group
    this.#options = options
    this.#member = new GroupMember({
      ...options,
      onAssigned: (assignment) => void this.#assigned(assignment),
      onRevoked: (assignment) => this.#revoked(assignment),
      onOver: (assignment) => this.#over(assignment),
      onRecreated: (assignment) => this.#recreated(assignment),
      onError: (error) => this.#failed(error),
    })
  }

  /** Resolves when the group has taken us in and we know where to read. */
  async open(): Promise<void> {
    this.#running = this.#member.run()
    try {
      await this.#opened.promise
    } catch (error) {
      await this.close(AbortSignal.abort())
      throw error
    }
    void this.#reportLag()
  }

  close(aborting?: AbortSignal): Promise<void> {
    this.#isClosing = true
    this.#closing ??= this.#close()
    const abort = (): void => {
      this.#reading?.end()
      this.#aborting.abort()
    }
    if (aborting?.aborted === true) abort()
    else aborting?.addEventListener('abort', abort, { once: true })
    return this.#closing
  }

  async #assigned(assignment: Assignment): Promise<void> {
    if (this.#isClosing) return
    const onFenced = (error: Error): void => this.#member.fenced(error)
    const onRecreated = (): void => this.#recreated(assignment)
    const reading = new AssignmentReading({ ...this.#options, assignment, ackWaitMs, onFenced, onRecreated })
    this.#reading = reading
    await reading.start()
    if (this.#reading !== reading) return
    this.#isOpen = true
    this.#opened.resolve()
  }

  async #revoked(assignment: Assignment): Promise<void> {
    const { clock, drainTimeoutMs } = this.#options
    const reading = this.#readingOf(assignment)
    if (reading === undefined) return
    await unlessLate(reading.drainGoing(), drainTimeoutMs, clock)
    await unlessLate(reading.flush(), flushMs, clock)
  }

  #over(assignment: Assignment): void {
    this.#readingOf(assignment)?.end()
    if (this.#reading?.assignment === assignment) this.#reading = undefined
  }

  /** What is in hand is of a topic that is gone: it is lost, and nothing is committed of it. With the next assignment all begins anew. */
  #recreated(assignment: Assignment): void {
    const reading = this.#readingOf(assignment)
    if (reading === undefined) return
    this.#reading = undefined
    this.#failed(
      new WaybillError(
        'CORRUPT',
        `Kafka, ${this.topic} was deleted and made again: what was not read of it is gone. The one that is there now is read from its beginning.`,
      ),
    )
    reading.end()
    this.#member.rejoin()
  }

  #readingOf(assignment: Assignment): AssignmentReading | undefined {
    return this.#reading?.assignment === assignment ? this.#reading : undefined
  }

  #failed(error: Error): void {
    if (!this.#isOpen && isPermanent(error)) this.#opened.reject(error)
    else if (!this.#isClosing) this.#options.onError(error)
  }

  async #close(): Promise<void> {
    const { client } = this.#options
    const reading = this.#reading
    if (reading !== undefined) await unlessAborted(this.#letGo(reading), this.#aborting.signal)
    this.#member.stop()
    const done = new AbortController()
    const givenUp = this.#givenUp(done.signal)
    await Promise.race([this.#running, givenUp])
    this.#closed.abort()
    this.#opened.resolve()
    await Promise.race([client.close(), givenUp])
    done.abort()
  }

  async #letGo(reading: AssignmentReading): Promise<void> {
    await reading.drain()
    await unlessLate(reading.flush(), flushMs, this.#options.clock)
  }

  /** Resolves some time after the close was aborted: a broker that does not answer must not keep us. */
  async #givenUp(done: AbortSignal): Promise<void> {
    await unlessAborted(new Promise(() => {}), this.#aborting.signal)
    await this.#options.clock.sleep(abortedMs, done)
  }

  async #reportLag(): Promise<void> {
    const { clock, client, topic, consumer, lagMs, signals } = this.#options
    for (;;) {
      await clock.sleep(lagMs, this.#closed.signal)
      if (this.#closed.signal.aborted) return
      const positions = this.#reading?.positions() ?? new Map<number, bigint>()
      if (positions.size === 0) continue
      const ends = await client.listOffsets({ topic, partitions: [...positions.keys()], at: 'latest' }).catch(() => undefined)
      for (const [partition, end] of ends ?? []) {
        const messages = Number(end - (positions.get(partition) ?? end))
        signals.emit('transport.lag', {
          transport: 'kafka',
          topic,
          consumer,
          partition: String(partition),
          messages: Math.max(0, messages),
        })
      }
    }
  }
}
