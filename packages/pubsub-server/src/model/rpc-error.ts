/**
 * A refusal as a gRPC status: the code says what the caller may do, the message what to change.
 *
 * With `ackFailures` it carries a google.rpc.ErrorInfo, in which official clients look up the outcome of each
 * acknowledgement id of an exactly-once subscription.
 */
import { status as grpcStatus } from '@grpc/grpc-js'

export type GrpcCode = Exclude<keyof typeof grpcStatus, 'OK'>

export class RpcError extends Error {
  readonly code: number
  readonly status: GrpcCode
  readonly ackFailures: ReadonlyMap<string, string> | undefined

  constructor(status: GrpcCode, message: string, ackFailures?: ReadonlyMap<string, string>) {
    super(message)
    this.name = 'RpcError'
    this.status = status
    this.code = grpcStatus[status]
    this.ackFailures = ackFailures
  }
}

export const invalid = (message: string): RpcError => new RpcError('INVALID_ARGUMENT', message)

export const notFound = (what: string, name: string): RpcError =>
  new RpcError('NOT_FOUND', `Resource not found (resource=${name}): create the ${what} first.`)

export const alreadyExists = (what: string, name: string): RpcError =>
  new RpcError('ALREADY_EXISTS', `Resource already exists in the project (resource=${name}): the ${what} is there.`)

/** The text of anything that was thrown. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
