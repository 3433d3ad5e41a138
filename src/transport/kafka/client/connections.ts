/**
 * Connections to the nodes of a cluster, through the connection and the codecs of `@platformatic/kafka`, which is loaded when
 * first needed. Its producer, its consumer and their retries are not used.
 *
 * A node answers the requests of one connection in turn. So a node has one connection for each purpose, and a request that
 * waits at the node for long, such as a fetch or a join, delays no other. A connection that let a request time out may be dead
 * without anybody having been told: it is ended, and the next request gets a new one.
 *
 * Every group of requests is made with `ClientParts`: a way to ask a node, and a way to read the error codes of an answer.
 */
import type * as platformatic from '@platformatic/kafka'
import { WaybillError } from '../../../core/errors.ts'
import { noAnswer } from './errors.ts'

export interface KafkaAddress {
  readonly host: string
  readonly port: number
}

export interface KafkaConnectOptions {
  readonly brokers: readonly KafkaAddress[]
  readonly clientId: string
  /** Options of `node:tls`. */
  readonly tls: object | undefined
  /** Options of `@platformatic/kafka`: mechanism, username, password, token … */
  readonly sasl: object | undefined
  readonly connectTimeoutMs: number
  /** Where a node that calls itself so is reached from here. */
  readonly addressOf: (node: KafkaAddress) => KafkaAddress
}

export type Purpose = 'control' | 'produce' | 'fetch' | 'group'

export interface Request {
  readonly purpose: Purpose
  /** The node that is asked; any one if undefined. */
  readonly node: number | undefined
  readonly api: KafkaApi
  /** What the client's own encoder takes; left out where `body` is written here. */
  readonly args?: readonly unknown[]
  readonly body?: (sdk: Sdk) => readonly Buffer[]
  /** Reads the answer's bytes. @default the client's own decoder */
  readonly parse?: (bytes: Buffer) => unknown
  readonly timeoutMs: number
  /** For messages: "produce to order.events". */
  readonly what: string
}

export type Sdk = typeof platformatic

/** The requests we send, in the version that every Kafka since 3.0 understands; a fetch also in a later one, where a node takes it. */
export type KafkaApi =
  | 'produceV9'
  | 'apiVersionsV3'
  | 'fetchV12'
  | 'fetchV13'
  | 'listOffsetsV7'
  | 'metadataV11'
  | 'offsetCommitV8'
  | 'offsetFetchV8'
  | 'findCoordinatorV4'
  | 'joinGroupV7'
  | 'heartbeatV4'
  | 'leaveGroupV4'
  | 'syncGroupV5'
  | 'createTopicsV7'
  | 'describeConfigsV4'
  | 'initProducerIdV4'

type Connection = InstanceType<Sdk['Connection']>
type Writer = InstanceType<Sdk['Writer']>
type Reader = InstanceType<Sdk['Reader']>

/** One request of the client: its encoder and its decoder. */
interface Codec {
  readonly api: { readonly key: number; readonly version: number }
  readonly createRequest: (...args: readonly unknown[]) => Writer
  readonly parseResponse: (correlationId: number, key: number, version: number, reader: Reader) => unknown
}

export class KafkaConnections {
  /** The cluster's own name for itself; empty until a node was asked about a topic. */
  cluster = ''
  readonly #options: KafkaConnectOptions
  readonly #nodes = new Map<number, KafkaAddress>()
  readonly #open = new Map<string, Promise<Connection>>()
  #isClosed = false
  #turn = 0

  constructor(options: KafkaConnectOptions) {
    this.#options = options
  }

  sdk(): Promise<Sdk> {
    return loadSdk()
  }

  /** Remembers where nodes are. */
  learn(nodes: readonly (KafkaAddress & { readonly nodeId: number })[]): void {
    for (const { nodeId, host, port } of nodes) this.#nodes.set(nodeId, { host, port })
  }

  /** Those that we were told and those of the nodes that we know, each once. */
  addresses(): readonly KafkaAddress[] {
    const known = [...this.#nodes.values()].map(this.#options.addressOf)
    return [...new Map([...this.#options.brokers, ...known].map((address) => [nameOf(address), address])).values()]
  }

  /** Sends one request; what it returns has Kafka's error codes in it. Rejects if no answer came. */
  async call<Response>(request: Request): Promise<Response> {
    const { purpose, node, timeoutMs, what } = request
    try {
      const sdk = await loadSdk()
      const connection = await (node === undefined ? this.#anyNode(purpose) : this.#connect(purpose, this.#addressOf(node)))
      return (await answered(connection, () => send(sdk, connection, request), timeoutMs)) as Response
    } catch (error) {
      throw noAnswer(error, what)
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    const open = [...this.#open.values()]
    this.#open.clear()
    await Promise.all(open.map((opening) => opening.then((connection) => connection.close()).catch(ignore)))
  }

  #addressOf(node: number): KafkaAddress {
    const address = this.#nodes.get(node)
    if (address === undefined) throw new WaybillError('UNAVAILABLE', `Node ${node} of the cluster is not known here.`)
    return this.#options.addressOf(address)
  }

  /** All that there are, one after the other, beginning with another each time. */
  async #anyNode(purpose: Purpose): Promise<Connection> {
    const addresses = this.addresses()
    this.#turn += 1
    let last: unknown
    for (let i = 0; i < addresses.length; i += 1) {
      try {
        return await this.#connect(purpose, addresses[(this.#turn + i) % addresses.length] as KafkaAddress)
      } catch (error) {
        last = error
      }
    }
    throw last instanceof Error ? last : new WaybillError('UNAVAILABLE', 'No broker is named.')
  }

  #connect(purpose: Purpose, address: KafkaAddress): Promise<Connection> {
    if (this.#isClosed) return Promise.reject(closed())
    const name = `${purpose} ${nameOf(address)}`
    const existing = this.#open.get(name)
    if (existing !== undefined) return existing
    const forget = (): void => {
      if (this.#open.get(name) === opening) this.#open.delete(name)
    }
    const opening = openConnection(this.#options, address, forget)
    this.#open.set(name, opening)
    opening.catch(forget)
    return opening
  }
}

function nameOf({ host, port }: KafkaAddress): string {
  return `${host}:${port}`
}

async function openConnection(
  options: KafkaConnectOptions,
  { host, port }: KafkaAddress,
  onEnd: () => void,
): Promise<Connection> {
  const { Connection } = await loadSdk()
  const { tls, sasl } = options
  const connection = new Connection(options.clientId, {
    connectTimeout: options.connectTimeoutMs,
    // Each request has its own time limit, which is ours.
    requestTimeout: longestTimerMs,
    maxInflights: 1_000,
    ...(tls === undefined ? {} : { tls }),
    ...(sasl === undefined ? {} : { sasl: sasl as { mechanism: 'PLAIN' } }),
  })
  // What goes wrong is told to those who wait for an answer. Without a listener it would end the process.
  connection.on('error', onEnd)
  connection.on('close', () => {
    onEnd()
    // The client still has a timer for its next authentication, which would keep the process. Of what is closed, this ends no more.
    void connection.close().catch(ignore)
  })
  await connection.connect(host, port)
  return connection
}

const longestTimerMs = 2_147_483_647

function send(sdk: Sdk, connection: Connection, { api, args = [], body, parse }: Request): Promise<unknown> {
  const codec = sdk[api] as unknown as Codec
  const write = (): Writer => {
    if (body === undefined) return codec.createRequest(...args)
    const writer = sdk.Writer.create()
    for (const bytes of body(sdk)) writer.append(bytes)
    return writer
  }
  const read: Codec['parseResponse'] =
    parse === undefined ? codec.parseResponse : (_id, _key, _version, reader) => parse(reader.buffer.slice())
  const { key, version } = codec.api
  // Who asks for versions cannot know yet how answers begin: this one begins as the first ever did, without tags.
  const hasTags = api !== 'apiVersionsV3'
  return new Promise((done, fail) => {
    connection.send(key, version, write, read, true, hasTags, (error, response) => {
      if (error === null) done(response)
      else fail(error)
    })
  })
}

/** The answer, also where it is full of errors: those are for the caller. */
async function answered(connection: Connection, send: () => Promise<unknown>, timeoutMs: number): Promise<unknown> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, fail) => {
    timer = setTimeout(() => {
      connection.socket.destroy()
      fail(new WaybillError('TIMEOUT', `No answer came within ${timeoutMs} ms.`))
    }, timeoutMs)
  })
  try {
    return await Promise.race([send(), late])
  } catch (error) {
    const response = (error as { readonly response?: unknown }).response
    if (response === undefined) throw error
    return response
  } finally {
    clearTimeout(timer)
  }
}

let loading: Promise<Sdk> | undefined

function loadSdk(): Promise<Sdk> {
  loading ??= import('@platformatic/kafka').catch((cause: unknown) => {
    loading = undefined
    throw new WaybillError('MISSING_PACKAGE', 'The Kafka transport needs its client: npm install @platformatic/kafka', { cause })
  })
  return loading
}

function closed(): WaybillError {
  return new WaybillError('ABORTED', 'The Kafka transport is closed; make a new one.', { retryable: false })
}

function ignore(): void {}

export interface PlatformaticClientOptions extends KafkaConnectOptions {
  readonly requestTimeoutMs: number
  readonly compression: 'none' | 'gzip' | 'snappy' | 'lz4' | 'zstd'
  readonly maxInflatedBytes: number
}

export interface Coded {
  readonly errorCode: number
  readonly errorMessage?: string | null
}

export type Ask = <Response>(request: Omit<Request, 'timeoutMs'> & { readonly timeoutMs?: number }) => Promise<Response>

/** What every group of requests is made with. */
export interface ClientParts {
  readonly ask: Ask
  readonly connections: KafkaConnections
  readonly options: PlatformaticClientOptions
  readonly check: (answer: Coded, what: string) => Promise<void>
  readonly nameOf: (code: number) => Promise<string>
}

/** We do not say which leader we believe in; a node that does not lead says so. */
export const noEpoch = -1
