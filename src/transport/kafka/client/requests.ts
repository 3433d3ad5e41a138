/**
 * The Kafka client over `@platformatic/kafka`: our requests in its codecs, its answers in our words.
 *
 * What is decided here and not there: only committed records are handed out, control records and what an aborted transaction
 * wrote are passed over, and a partition's offset goes on behind them. Topics are never made by asking for them.
 */
import { AnswerBudget } from './wire/answer-budget.ts'
import type { FetchRequest, KafkaClient, KafkaTopic, ProduceAnswer, ProduceRequest } from './kafka-client.ts'
import {
  KafkaConnections,
  type Sdk,
  noEpoch,
  type ClientParts,
  type Coded,
  type PlatformaticClientOptions,
} from './connections.ts'
import { kafkaError } from './errors.ts'
import { grouping } from './group-requests.ts'
import { parseFetchResponse, type FetchResponse } from './wire/fetch-response.ts'
import { readPartition } from './wire/read-batches.ts'
import { encodeBatch } from './wire/write-batch.ts'

export function platformaticClient(options: PlatformaticClientOptions): KafkaClient {
  const connections = new KafkaConnections(options)
  let names: ReadonlyMap<number, string> | undefined
  const nameOf = async (code: number): Promise<string> => {
    names ??= errorNames(await connections.sdk())
    return names.get(code) ?? `error ${code}`
  }
  const parts: ClientParts = {
    connections,
    options,
    nameOf,
    ask: (request) => connections.call({ timeoutMs: options.requestTimeoutMs, ...request }),
    check: async ({ errorCode, errorMessage }, what) => {
      if (errorCode !== 0) throw kafkaError(await nameOf(errorCode), what, { said: errorMessage ?? '' })
    },
  }
  const describeTopic = topicDescriber(parts)
  return {
    ...writing(parts),
    ...reading(parts, describeTopic),
    ...grouping(parts),
    ...administering(parts),
    describeTopic,
    addresses: () => connections.addresses().length,
    close: () => connections.close(),
  }
}

interface RawMetadata {
  readonly clusterId: string | null
  readonly brokers: readonly { readonly nodeId: number; readonly host: string; readonly port: number }[]
  readonly topics: readonly (Coded & {
    readonly name: string | null
    readonly topicId: string
    readonly partitions: readonly {
      readonly partitionIndex: number
      readonly leaderId: number
      readonly replicaNodes: readonly number[]
    }[]
  })[]
}

/** What a cluster says that has not been told to give topics ids (its metadata.version is older than 2.8). */
const noTopicId = '00000000-0000-0000-0000-000000000000'

function topicDescriber({ ask, connections, check }: ClientParts): KafkaClient['describeTopic'] {
  return async (name): Promise<KafkaTopic> => {
    const what = `topic ${name}`
    const args = [[name], false, false]
    const request = { purpose: 'control', node: undefined, api: 'metadataV11', args, what } as const
    const { brokers, topics, clusterId } = await ask<RawMetadata>(request)
    connections.learn(brokers)
    connections.cluster = clusterId ?? ''
    const [topic] = topics
    if (topic === undefined) throw kafkaError('UNKNOWN_TOPIC_OR_PARTITION', what)
    await check(topic, what)
    const partitions = topic.partitions.toSorted((a, b) => a.partitionIndex - b.partitionIndex)
    return {
      name,
      id: topic.topicId === noTopicId ? undefined : topic.topicId,
      partitions: partitions.map(({ leaderId, replicaNodes }) => ({
        leader: leaderId < 0 ? undefined : leaderId,
        replicas: replicaNodes.length,
      })),
    }
  }
}

interface RawProduced {
  readonly responses: readonly {
    readonly name: string
    readonly partitionResponses: readonly (Coded & { readonly index: number; readonly baseOffset: bigint })[]
  }[]
}

function writing({ ask, check, nameOf, options }: ClientParts): Pick<KafkaClient, 'initProducer' | 'produce'> {
  return {
    initProducer: async () => {
      const what = 'a producer id'
      const request = { purpose: 'control', node: undefined, api: 'initProducerIdV4', args: [null, 0], what } as const
      const answer = await ask<Coded & { readonly producerId: bigint; readonly producerEpoch: number }>(request)
      await check(answer, what)
      return { id: answer.producerId, epoch: answer.producerEpoch }
    },
    produce: async (request) => {
      const { leader, batches, timeoutMs } = request
      const answer = await ask<RawProduced>({
        purpose: 'produce',
        node: leader,
        api: 'produceV9',
        body: (sdk) => produceBody(request, sdk, options.compression),
        timeoutMs: timeoutMs + answerMarginMs,
        what: `produce to node ${leader}`,
      })
      const answers = new Map(
        answer.responses.flatMap(({ name, partitionResponses }) =>
          partitionResponses.map((each) => [`${name}:${each.index}`, each] as const),
        ),
      )
      const toAnswer = async ({ topic, partition }: ProduceRequest['batches'][number]): Promise<ProduceAnswer> => {
        const each = answers.get(`${topic}:${partition}`)
        if (each === undefined) return { error: 'NETWORK_EXCEPTION', message: 'the answer does not mention this partition' }
        if (each.errorCode === 0) return { baseOffset: each.baseOffset }
        return { error: await nameOf(each.errorCode), message: each.errorMessage ?? '' }
      }
      return Promise.all(batches.map(toAnswer))
    },
  }
}

/** The broker answers when its own time is up; a little later we give up waiting. */
const answerMarginMs = 1_000
const acksOfAll = -1

/** A produce request of version 9: who, how sure, how long; topics with their partitions; each with one batch. */
function produceBody(
  { producer, batches, timeoutMs }: ProduceRequest,
  sdk: Sdk,
  compression: PlatformaticClientOptions['compression'],
): readonly Buffer[] {
  const { crc32c, compressionsAlgorithms } = sdk
  const algorithm = compression === 'none' ? undefined : compressionsAlgorithms[compression]
  const compressor =
    algorithm === undefined
      ? undefined
      : { code: algorithm.bitmask, compress: (bytes: Buffer) => Buffer.from(algorithm.compressSync(bytes)) }
  const topics = [...Map.groupBy(batches, ({ topic }) => topic)]
  const writer = sdk.Writer.create().appendString(null).appendInt16(acksOfAll).appendInt32(timeoutMs)
  writer.appendArray(topics, (_, [topic, ofTopic]) => {
    writer.appendString(topic).appendArray(ofTopic, (_unused, { partition, sequence, records }) => {
      const bytes = encodeBatch(records, { producer, sequence, crc32c, compression: compressor })
      writer
        .appendInt32(partition)
        .appendUnsignedVarInt(bytes.length + 1)
        .append(bytes)
    })
  })
  return writer.appendTaggedFields().buffers
}

interface RawOffsets {
  readonly topics: readonly {
    readonly partitions: readonly (Coded & { readonly partitionIndex: number; readonly offset: bigint })[]
  }[]
}

const readCommitted = 1

/** Fetches, and the offsets of moments. */
export function reading(
  parts: ClientParts,
  describeTopic: KafkaClient['describeTopic'],
): Pick<KafkaClient, 'fetch' | 'listOffsets'> {
  const { ask, check, connections, nameOf, options } = parts
  const askForRecords = recordsAsker(parts)
  return {
    fetch: async (request) => {
      const { compressionsAlgorithms, crc32c } = await connections.sdk()
      const { topic, from } = request
      const what = `fetch ${topic}`
      const answer = await askForRecords(request, what)
      await check(answer, what)
      const budget = new AnswerBudget(options.maxInflatedBytes)
      const decompress = (code: number, bytes: Buffer): Buffer => budget.inflate(code, bytes, compressionsAlgorithms)
      return Promise.all(
        answer.partitions.map(async ({ partition, errorCode, batches, aborted }) => ({
          partition,
          error: errorCode === 0 ? undefined : await nameOf(errorCode),
          ...readPartition(
            { batches, aborted, from: from.get(partition) ?? 0n, decompress, crc32c, budget },
            `${topic}/${partition}`,
          ),
        })),
      )
    },
    listOffsets: async ({ topic, partitions, at }) => {
      const what = `offsets of ${topic}`
      const leaders = (await describeTopic(topic)).partitions
      const timestamp = at === 'earliest' ? -2n : at === 'latest' ? -1n : BigInt(Math.floor(at.sinceMs))
      const byLeader = Map.groupBy(partitions, (partition) => leaders[partition]?.leader)
      const found = await Promise.all(
        [...byLeader].map(async ([leader, indexes]) => {
          if (leader === undefined) throw kafkaError('LEADER_NOT_AVAILABLE', what)
          const asked = indexes.map((partitionIndex) => ({ partitionIndex, currentLeaderEpoch: noEpoch, timestamp }))
          const args = [-1, readCommitted, [{ name: topic, partitions: asked }]]
          const answer = await ask<RawOffsets>({ purpose: 'control', node: leader, api: 'listOffsetsV7', args, what })
          const answers = answer.topics.flatMap((each) => each.partitions)
          for (const each of answers) await check(each, what)
          return answers
            .filter(({ offset }) => offset >= 0n)
            .map(({ partitionIndex, offset }) => [partitionIndex, offset] as const)
        }),
      )
      return new Map(found.flat())
    },
  }
}

/** Asks by the topic's id where the node takes that, so that no other topic of the name can answer. */
function recordsAsker({ ask }: ClientParts): (request: FetchRequest, what: string) => Promise<FetchResponse> {
  const byId = fetchById({ ask })
  return async (request, what) => {
    const { leader: node, topic, topicId, maxWaitMs } = request
    const isById = topicId !== undefined && (await byId.isTakenBy(node))
    try {
      return await ask<FetchResponse>({
        purpose: 'fetch',
        node,
        api: isById ? 'fetchV13' : 'fetchV12',
        args: fetchArgs(request, isById ? topicId : topic),
        parse: (bytes) => parseFetchResponse(bytes, isById),
        timeoutMs: maxWaitMs + 10_000,
        what,
      })
    } catch (error) {
      byId.forget(node)
      throw error
    }
  }
}

/** @param topicId the topic's id, or its name where the version goes by that */
function fetchArgs({ from, maxWaitMs, maxBytes, maxPartitionBytes }: FetchRequest, topicId: string): readonly unknown[] {
  const partitions = [...from].map(([partition, fetchOffset]) => ({
    partition,
    currentLeaderEpoch: noEpoch,
    fetchOffset,
    lastFetchedEpoch: noEpoch,
    partitionMaxBytes: maxPartitionBytes,
  }))
  // No fetch session: what is asked for changes with what there is room for.
  return [maxWaitMs, 1, maxBytes, readCommitted, 0, -1, [{ topicId, partitions }], [], '']
}

interface RawConfigs {
  readonly results: readonly (Coded & { readonly configs: readonly { readonly name: string; readonly value: string | null }[] })[]
}

const topicResource = 2

function administering({ ask, check }: ClientParts): Pick<KafkaClient, 'topicSettings' | 'createTopic'> {
  return {
    topicSettings: async (topic) => {
      const what = `settings of ${topic}`
      const args = [[{ resourceType: topicResource, resourceName: topic, configurationKeys: null }], false, false]
      const { results } = await ask<RawConfigs>({ purpose: 'control', node: undefined, api: 'describeConfigsV4', args, what })
      for (const each of results) await check(each, what)
      return new Map(results.flatMap(({ configs }) => configs.map(({ name, value }) => [name, value ?? ''] as const)))
    },
    createTopic: async ({ name, partitions, replicationFactor, settings = {} }) => {
      const what = `create topic ${name}`
      const configs = Object.entries(settings).map(([key, value]) => ({ name: key, value }))
      const topic = { name, numPartitions: partitions, replicationFactor, assignments: [], configs }
      const request = {
        purpose: 'control',
        node: undefined,
        api: 'createTopicsV7',
        args: [[topic], 10_000, false],
        what,
      } as const
      const answer = await ask<{ readonly topics: readonly Coded[] }>(request)
      for (const each of answer.topics) await check(each, what)
    },
  }
}

function errorNames({ protocolErrors }: Sdk): ReadonlyMap<number, string> {
  return new Map(Object.values(protocolErrors).map(({ code, id }) => [code, id]))
}

/**
 * Which nodes take a fetch by the topic's id (version 13, Kafka 3.1 and later). Only such a fetch can never be answered from
 * another topic of the same name; asked for in a version that it does not know, a node ends the connection instead of answering.
 *
 * A node is asked once. It may come back with another version, and then it has not answered before: who gets no answer forgets it.
 */
interface FetchById {
  isTakenBy(node: number): Promise<boolean>
  forget(node: number): void
}

interface RawVersions {
  readonly apiKeys: readonly { readonly apiKey: number; readonly maxVersion: number }[]
}

const fetchKey = 1
const firstVersionById = 13

function fetchById({ ask }: Pick<ClientParts, 'ask'>): FetchById {
  const known = new Map<number, Promise<boolean>>()
  const look = async (node: number): Promise<boolean> => {
    const what = `versions of node ${node}`
    const request = { purpose: 'fetch', node, api: 'apiVersionsV3', args: ['waybill', '1'], what } as const
    const { apiKeys } = await ask<RawVersions>(request)
    return apiKeys.some(({ apiKey, maxVersion }) => apiKey === fetchKey && maxVersion >= firstVersionById)
  }
  return {
    isTakenBy: (node) => {
      const asked = known.get(node) ?? look(node)
      known.set(node, asked)
      asked.catch(() => known.delete(node))
      return asked
    },
    forget: (node) => void known.delete(node),
  }
}
