/**
 * What the requests of the Kafka client are made with: a way to ask a node, and a way to read the error codes of an answer.
 */
import type { KafkaConnectOptions, KafkaConnections, Request } from './connections.ts'

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
