/**
 * The connection to Pub/Sub, through the generated clients of Google's own package, which is loaded when first needed.
 *
 * Calls go to the gRPC stub of those clients, which carries their credentials, but past their retries: every call has a
 * deadline of ours, can be aborted, and is answered once. A connection that let a call time out, or until its caller gave up,
 * may be dead without anybody having been told, so the next call gets a new one.
 */
import { createRequire } from 'node:module'
import type { v1 } from '@google-cloud/pubsub'
import { WaybillError } from '../../../core/errors.ts'
import { underSignals, unlessAborted } from '../../../core/service/abort.ts'
import { status, statusOf } from './errors.ts'

export interface PubsubConnectOptions {
  readonly projectId: string
  /** A regional endpoint, `europe-west1-pubsub.googleapis.com:443`. Order is kept within one region only. */
  readonly apiEndpoint: string | undefined
  /** `host:port` of an emulator or of `waybill pubsub-server`: no TLS, no credentials. */
  readonly emulatorHost: string | undefined
  /** Passed on to Google's client: `keyFilename`, `credentials`, `authClient`, `universeDomain` … */
  readonly clientOptions: Readonly<Record<string, unknown>>
}

type Callback = (error: Error | null, response: unknown) => void
type UnaryMethod = (
  request: object,
  metadata: unknown,
  options: { readonly deadline: number },
  callback: Callback,
) => { cancel(): void }

/** A two-way StreamingPull, as far as we use it. */
export interface PullDuplex {
  write(request: object): boolean
  end(): void
  cancel(): void
  pause(): void
  resume(): void
  on(event: 'data', listener: (response: PullResponse) => void): this
  on(event: 'metadata', listener: () => void): this
  on(event: 'error', listener: (error: Error) => void): this
  on(event: 'status', listener: (status: { readonly code: number; readonly details: string }) => void): this
}

export interface PullResponse {
  readonly receivedMessages?: readonly ReceivedMessage[] | null
  readonly subscriptionProperties?: { readonly exactlyOnceDeliveryEnabled?: boolean | null } | null
}

export interface ReceivedMessage {
  readonly ackId: string
  readonly deliveryAttempt: number
  readonly message: {
    readonly messageId: string
    readonly orderingKey: string
    readonly attributes: Readonly<Record<string, string>>
    readonly data: Uint8Array
    readonly publishTime: { readonly seconds: string | number; readonly nanos: number } | null
  }
}

export interface CallOptions {
  /** The header by which Google routes: the resource's name under the field's. */
  readonly routing: Readonly<Record<string, string>>
  readonly timeoutMs: number
  readonly signal?: AbortSignal
}

/** One channel of one service. */
export interface Connection {
  call<Response>(method: string, request: object, options: CallOptions): Promise<Response>
  streamingPull(routing: Readonly<Record<string, string>>): PullDuplex
  /** Whether the service has answered the opening of the channel, and nothing has broken it since. */
  isConnected(): boolean
  /** A call of google.iam.v1, which every service of Google's answers beside its own. */
  iam<Response>(method: IamMethod, request: object, timeoutMs: number): Promise<Response>
  close(): Promise<void>
}

export type IamMethod = 'getIamPolicy' | 'setIamPolicy' | 'testIamPermissions'
export type Service = 'Publisher' | 'Subscriber' | 'SchemaService'

/** Google's package and the gRPC it runs on. */
interface Sdk {
  readonly v1: typeof v1
  readonly Metadata: new () => { set(key: string, value: string): void }
  readonly insecure: () => unknown
  readonly readStatusDetails: (error: object) => { readonly errorInfoMetadata?: Readonly<Record<string, string>> }
}

/** Opens a channel of its own. */
export async function openConnection(service: Service, options: PubsubConnectOptions): Promise<Connection> {
  const sdk = await loadSdk()
  const client = newClient(sdk, service, options)
  const stub = await client.initialize()
  const metadata = (routing: Readonly<Record<string, string>>): unknown => {
    const header = new sdk.Metadata()
    const pairs = Object.entries(routing).map(([field, value]) => `${field}=${encodeURIComponent(value)}`)
    header.set('x-goog-request-params', pairs.join('&'))
    return header
  }
  return {
    call: <Response>(method: string, request: object, { routing, timeoutMs, signal }: CallOptions) =>
      new Promise<Response>((done, fail) => {
        if (signal?.aborted === true) return fail(new WaybillError('ABORTED', `Pub/Sub, ${method}: aborted before it was sent.`))
        const cancel = (): void => call.cancel()
        const call = (stub[method] as UnaryMethod)(
          request,
          metadata(routing),
          { deadline: Date.now() + timeoutMs },
          (error, response) => {
            signal?.removeEventListener('abort', cancel)
            if (error === null) done(response as Response)
            else fail(error)
          },
        )
        signal?.addEventListener('abort', cancel, { once: true })
      }),
    streamingPull: (routing) => stub.streamingPull(metadata(routing)),
    isConnected: () => stub.getChannel().getConnectivityState(false) === connected,
    iam: async <Response>(method: IamMethod, request: object, timeoutMs: number) => {
      const [response] = await client[method](request, { timeout: timeoutMs, retry: { retryCodes: [] } })
      return response as Response
    },
    close: () => client.close(),
  }
}

/** A connection that is opened at the first call and replaced after a call that got no answer. */
export class LazyConnection {
  readonly #service: Service
  readonly #options: PubsubConnectOptions
  readonly #open = new WeakMap<Promise<Connection>, Connection>()
  #current: Promise<Connection> | undefined
  #isClosed = false

  constructor(service: Service, options: PubsubConnectOptions) {
    this.#service = service
    this.#options = options
  }

  call<Response>(method: string, request: object, options: CallOptions): Promise<Response> {
    return this.#use(options, (connection) => connection.call<Response>(method, request, options))
  }

  iam<Response>(method: IamMethod, request: object, timeoutMs: number): Promise<Response> {
    return this.#use({ timeoutMs }, (connection) => connection.iam<Response>(method, request, timeoutMs))
  }

  async close(): Promise<void> {
    const current = this.#current
    this.#isClosed = true
    this.#current = undefined
    if (current === undefined) return
    const closed = current.then((connection) => connection.close()).catch(() => {})
    // One that never opens is not waited for.
    if (this.#open.has(current)) await closed
  }

  async #use<Response>(
    within: Pick<CallOptions, 'timeoutMs' | 'signal'>,
    use: (connection: Connection) => Promise<Response>,
  ): Promise<Response> {
    if (this.#isClosed)
      throw new WaybillError('ABORTED', 'The Pub/Sub transport is closed; make a new one.', { retryable: false })
    const current = (this.#current ??= openConnection(this.#service, this.#options))
    let opened: Connection | undefined
    try {
      opened = this.#open.get(current) ?? (await openedWithin(current, within))
      this.#open.set(current, opened)
      return await use(opened)
    } catch (error) {
      if ((opened === undefined || isUnanswered(error)) && this.#current === current) {
        this.#current = undefined
        void current.then((connection) => connection.close()).catch(() => {})
      }
      throw error
    }
  }
}

/**
 * Opening asks for credentials, and nobody promises when those come: it has the time of a call, and the call that waits for it has
 * its own after that.
 */
export async function openedWithin(
  opening: Promise<Connection>,
  { timeoutMs, signal }: Pick<CallOptions, 'timeoutMs' | 'signal'>,
): Promise<Connection> {
  const late = AbortSignal.timeout(timeoutMs)
  const ends = signal === undefined ? [late] : [late, signal]
  const opened = await underSignals(ends, (end) => unlessAborted(opening, end))
  if (opened !== undefined) return opened
  throw new WaybillError('UNAVAILABLE', 'Pub/Sub: the connection, or the credentials for it, did not come in time.')
}

/** Whether our deadline or our caller ended the call. Their timers are a millisecond apart, so either may come first. */
function isUnanswered(error: unknown): boolean {
  const code = statusOf(error)
  return code === status.deadlineExceeded || code === status.cancelled
}

/**
 * What the service adds to the status of a failed call. Under an ack id it says why this one failed, beginning with `TRANSIENT_`
 * where a repetition may help; under other names, of a quota or a permission, why the whole call did.
 */
export async function failureDetails(error: unknown): Promise<ReadonlyMap<string, string>> {
  if (error === null || typeof error !== 'object') return new Map()
  const { readStatusDetails } = await loadSdk()
  return new Map(Object.entries(readStatusDetails(error).errorInfoMetadata ?? {}))
}

let loading: Promise<Sdk> | undefined

function loadSdk(): Promise<Sdk> {
  loading ??= importSdk().catch((cause: unknown) => {
    loading = undefined
    throw new WaybillError('MISSING_PACKAGE', "The Pub/Sub transport needs Google's client: npm install @google-cloud/pubsub", {
      cause,
    })
  })
  return loading
}

async function importSdk(): Promise<Sdk> {
  const sdk = await import('@google-cloud/pubsub')
  // From where Google's package stands: package managers that isolate dependencies hide google-gax from us.
  const neighbour = createRequire(createRequire(import.meta.url).resolve('@google-cloud/pubsub'))
  const gax = neighbour('google-gax') as {
    readonly grpc: { readonly Metadata: Sdk['Metadata']; readonly credentials: { createInsecure(): unknown } }
    readonly GoogleError: { parseGRPCStatusDetails: Sdk['readStatusDetails'] }
  }
  return {
    v1: sdk.v1,
    Metadata: gax.grpc.Metadata,
    insecure: () => gax.grpc.credentials.createInsecure(),
    readStatusDetails: (error) => gax.GoogleError.parseGRPCStatusDetails(error),
  }
}

type IamCall = (request: object, options: object) => Promise<readonly unknown[]>

type Stub = Record<string, UnaryMethod> & {
  streamingPull(metadata: unknown): PullDuplex
  getChannel(): { getConnectivityState(connect: boolean): number }
}

/** READY, of gRPC's states of a channel. */
const connected = 2

interface GeneratedClient extends Readonly<Record<IamMethod, IamCall>> {
  initialize(): Promise<Stub>
  close(): Promise<void>
}

function newClient(sdk: Sdk, service: Service, options: PubsubConnectOptions): GeneratedClient {
  const Client = {
    Publisher: sdk.v1.PublisherClient,
    Subscriber: sdk.v1.SubscriberClient,
    SchemaService: sdk.v1.SchemaServiceClient,
  }[service]
  return new Client({
    projectId: options.projectId,
    // The answer to an acknowledgement with exactly-once delivery names every failed id in its trailers.
    'grpc.max_metadata_size': 4 * 1024 * 1024,
    'grpc.keepalive_time_ms': 300_000,
    'grpc.keepalive_timeout_ms': 20_000,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 5_000,
    // Channels to one address share a socket otherwise, and a new one could not replace a dead one.
    'grpc.use_local_subchannel_pool': 1,
    ...options.clientOptions,
    ...endpoint(sdk, options),
  }) as unknown as GeneratedClient
}

function endpoint(sdk: Sdk, { apiEndpoint, emulatorHost }: PubsubConnectOptions): object {
  const address = emulatorHost ?? apiEndpoint
  if (address === undefined) return {}
  const [, host, port] = /^(?:https?:\/\/)?(.+?)(?::(\d+))?\/?$/.exec(address) ?? []
  const where = { servicePath: host, port: Number(port ?? 443) }
  // Without this stand-in the client searches the machine, and the network, for credentials that it will not use.
  const nobody = { getUniverseDomain: () => Promise.resolve('googleapis.com') }
  return emulatorHost === undefined ? where : { ...where, sslCreds: sdk.insecure(), auth: nobody }
}
