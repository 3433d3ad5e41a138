/**
 * What publishing needs to know of topics: partitions, leaders, the largest batch, and whether the topic can hold the promise.
 *
 * A confirmed record must survive the loss of a node. With acks of all in-sync replicas it does if at least two have to be in
 * sync: a topic with a lower `min.insync.replicas`, or with fewer copies, is refused at its first use.
 */
import { WaybillError } from '../../../core/errors.ts'
import type { KafkaClient, KafkaTopic } from '../client/kafka-client.ts'
import { kafkaErrorName } from '../client/errors.ts'

export interface KnownTopic {
  readonly name: string
  readonly partitions: number
  /** The node that leads a partition; undefined while none is known. */
  leaderOf(partition: number): number | undefined
  /** The largest batch that the topic takes. */
  readonly maxBatchBytes: number
}

export interface TopicDirectoryOptions {
  readonly client: KafkaClient
  /** Replicas that must confirm a record; 0 asks for nothing. */
  readonly minInsyncReplicas: number
  /** How long the number of partitions is taken for granted. */
  readonly metadataMaxAgeMs: number
  readonly nowMs: () => number
}

interface Page {
  topic: KafkaTopic
  readonly maxBatchBytes: number
  readAtMs: number
}

export class TopicDirectory {
  readonly #options: TopicDirectoryOptions
  readonly #pages = new Map<string, Promise<Page>>()
  readonly #refreshing = new Map<string, Promise<void>>()

  constructor(options: TopicDirectoryOptions) {
    this.#options = options
  }

  /** Looks a topic up; rejects if it is not there, cannot be asked for, or cannot hold the promise. */
  async topic(name: string): Promise<KnownTopic> {
    const page = await this.#page(name)
    if (this.#options.nowMs() - page.readAtMs > this.#options.metadataMaxAgeMs) await this.refresh(name).catch(() => undefined)
    return {
      name,
      partitions: page.topic.partitions.length,
      leaderOf: (partition) => page.topic.partitions[partition]?.leader,
      maxBatchBytes: page.maxBatchBytes,
    }
  }

  /** Asks for the leaders again; those who ask at the same time share one question. */
  refresh(name: string): Promise<void> {
    const running = this.#refreshing.get(name)
    if (running !== undefined) return running
    const refreshing = this.#refresh(name).finally(() => this.#refreshing.delete(name))
    this.#refreshing.set(name, refreshing)
    return refreshing
  }

  async #refresh(name: string): Promise<void> {
    const page = await this.#page(name)
    const topic = await this.#options.client.describeTopic(name)
    page.topic = topic
    page.readAtMs = this.#options.nowMs()
  }

  #page(name: string): Promise<Page> {
    const known = this.#pages.get(name)
    if (known !== undefined) return known
    const reading = this.#read(name)
    this.#pages.set(name, reading)
    reading.catch(() => this.#pages.delete(name))
    return reading
  }

  async #read(name: string): Promise<Page> {
    const { client, minInsyncReplicas, nowMs } = this.#options
    const topic = await client.describeTopic(name)
    const settings = await this.#settings(name)
    if (minInsyncReplicas > 0) {
      const replicas = Math.min(...topic.partitions.map((each) => each.replicas))
      const insync = Number(settings.get('min.insync.replicas') ?? 1)
      if (Math.min(replicas, insync) < minInsyncReplicas) throw tooFewReplicas(name, { replicas, insync, minInsyncReplicas })
    }
    return { topic, maxBatchBytes: Number(settings.get('max.message.bytes') ?? defaultBatchBytes), readAtMs: nowMs() }
  }

  async #settings(name: string): Promise<ReadonlyMap<string, string>> {
    const { client, minInsyncReplicas } = this.#options
    try {
      return await client.topicSettings(name)
    } catch (error) {
      if (kafkaErrorName(error) !== 'TOPIC_AUTHORIZATION_FAILED') throw error
      if (minInsyncReplicas === 0) return new Map()
      const advice = 'Grant DESCRIBE_CONFIGS on it, or set minInsyncReplicas to 0 if you know that it can.'
      throw new WaybillError('FORBIDDEN', `Whether topic ${name} can hold what it confirms cannot be seen. ${advice}`, {
        cause: error,
      })
    }
  }
}

/** Kafka's own default of max.message.bytes. */
const defaultBatchBytes = 1_048_588

function tooFewReplicas(
  name: string,
  has: { readonly replicas: number; readonly insync: number; readonly minInsyncReplicas: number },
): WaybillError {
  return new WaybillError(
    'REFUSED',
    `Topic ${name} confirms what ${Math.min(has.insync, has.replicas)} of ${has.replicas} replicas have, so the loss of a node can lose confirmed messages. ` +
      `Set its min.insync.replicas to ${has.minInsyncReplicas} with more replicas than that, or lower minInsyncReplicas of the transport.`,
  )
}
