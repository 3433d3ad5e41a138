/**
 * Outcomes as errors of gRPC and Connect, with `RetryInfo` where sending the same request again may help.
 *
 *   const error = grpcError(outcome, new Metadata())            // @grpc/grpc-js: callback(error ?? null, reply)
 *   const error = connectError(outcome, ConnectError)           // @connectrpc/connect: if (error) throw error
 */
import type { Outcome } from '../command/model/outcome.ts'
import { rpcStatus, type RpcStatus } from '../command/http-status.ts'
import { encodeStatus, errorInfo, retryInfo, type RpcDetail } from './rpc-details.ts'

export { grpcHealth, type GrpcHealth, type GrpcHealthDefinition, type HealthLike, type ServingStatus } from './grpc-health.ts'

/** The part of gRPC's `Metadata` we use. */
export interface GrpcMetadata {
  set(key: string, value: Buffer): void
}

/** What a handler of `@grpc/grpc-js` calls back with. */
export interface GrpcServiceError<Metadata> {
  readonly code: number
  readonly details: string
  readonly metadata: Metadata
}

/** The error to call back with, or `undefined` for a success. `metadata` becomes the trailers. */
export function grpcError<Metadata extends GrpcMetadata>(
  outcome: Outcome,
  metadata: Metadata,
): GrpcServiceError<Metadata> | undefined {
  const status = rpcStatus(outcome)
  if (status === undefined) return undefined
  metadata.set('grpc-status-details-bin', encodeStatus(status.code, status.message, detailsOf(status)))
  return { code: status.number, details: status.message, metadata }
}

/** The part of Connect's `ConnectError` we use. */
export type ConnectErrorClass<ConnectError> = new (message: string, code: number) => ConnectError

/** The error to throw, or `undefined` for a success. */
export function connectError<ConnectError extends { details: unknown[] }>(
  outcome: Outcome,
  errorClass: ConnectErrorClass<ConnectError>,
): ConnectError | undefined {
  const status = rpcStatus(outcome)
  if (status === undefined) return undefined
  const error = new errorClass(status.message, status.number)
  error.details = [...detailsOf(status)]
  return error
}

function detailsOf({ reason, retryAfterMs, metadata }: RpcStatus): readonly RpcDetail[] {
  const info = errorInfo(reason, metadata)
  return retryAfterMs === undefined ? [info] : [info, retryInfo(retryAfterMs)]
}
