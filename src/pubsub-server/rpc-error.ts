/**
 * A refusal as a gRPC status: the code says what the caller may do, the message what to change.
 *
 * With `ackFailures` it carries a google.rpc.ErrorInfo, in which official clients look up the outcome of each
 * acknowledgement id of an exactly-once subscription.
 */
import { grpcCodes } from '../core/errors.ts'
import type { GrpcCode } from '../core/errors.ts'

export class RpcError extends Error {
  readonly code: number
  readonly status: GrpcCode
  readonly ackFailures: ReadonlyMap<string, string> | undefined

  constructor(status: GrpcCode, message: string, ackFailures?: ReadonlyMap<string, string>) {
    super(message)
    this.name = 'RpcError'
    this.status = status
    this.code = grpcCodes[status]
    this.ackFailures = ackFailures
  }
}

export const invalid = (message: string): RpcError => new RpcError('INVALID_ARGUMENT', message)

export const notFound = (what: string, name: string): RpcError =>
  new RpcError('NOT_FOUND', `Resource not found (resource=${name}): create the ${what} first.`)

export const alreadyExists = (what: string, name: string): RpcError =>
  new RpcError('ALREADY_EXISTS', `Resource already exists in the project (resource=${name}): the ${what} is there.`)
