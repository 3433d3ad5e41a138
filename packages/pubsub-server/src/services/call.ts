/**
 * Between gRPC and the broker: one answer per call, refusals as statuses, and no answer before the journal has what it changed.
 */
import { Metadata, status as grpcStatus } from '@grpc/grpc-js'
import type { sendUnaryData, ServerUnaryCall, StatusObject } from '@grpc/grpc-js'
import type { Broker } from '../broker/broker.ts'
import type { Faults } from '../model/faults.ts'
import { errorMessage, RpcError } from '../model/rpc-error.ts'
import type { Codec } from '../protocol/protocol.ts'

export type UnaryHandler = (call: ServerUnaryCall<unknown, unknown>, callback: sendUnaryData<unknown>) => void

export interface CallContext {
  readonly broker: Broker
  readonly toStatus: (error: unknown) => Partial<StatusObject>
}

/** Serves a unary method: `answer` may be synchronous; what it changed is durable before the caller hears of it. */
export function unary<Request>(
  context: CallContext,
  answer: (request: Request, call: ServerUnaryCall<unknown, unknown>) => unknown,
): UnaryHandler {
  return (call, callback) => {
    const fail = (error: unknown): void => callback(context.toStatus(error))
    try {
      const response = answer(call.request as Request, call)
      const flushed = context.broker.journal.flushed()
      if (!(response instanceof Promise) && flushed === undefined) return callback(null, response)
      void Promise.all([response, flushed]).then(([value]) => callback(null, value), fail)
    } catch (error) {
      fail(error)
    }
  }
}

/** Refuses the call, as a service that is down would, when that fault is on and strikes. */
export function refuse(faults: Faults): void {
  if (faults.strikes('refuse')) throw new RpcError('UNAVAILABLE', 'Fault: the server refuses this call.')
}

/** Turns anything thrown into a gRPC status; outcomes of acknowledgements travel as google.rpc.ErrorInfo. */
export function statusMapper(codecs: { status: Codec; errorInfo: Codec }): CallContext['toStatus'] {
  return (error) => {
    if (!(error instanceof RpcError)) return { code: grpcStatus.INTERNAL, details: errorMessage(error) }
    const status = { code: error.code, details: error.message }
    if (error.ackFailures === undefined) return status
    const info = {
      reason: 'EXACTLY_ONCE_ACKID_FAILURE',
      domain: 'pubsub.googleapis.com',
      metadata: Object.fromEntries(error.ackFailures),
    }
    const any = { typeUrl: 'type.googleapis.com/google.rpc.ErrorInfo', value: codecs.errorInfo.encode(info) }
    const metadata = new Metadata()
    metadata.set('grpc-status-details-bin', codecs.status.encode({ code: error.code, message: error.message, details: [any] }))
    return { ...status, metadata }
  }
}
