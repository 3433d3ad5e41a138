/**
 * The few messages of google.rpc that carry an error's details, written by hand: they have not changed for years, and a Protobuf
 * runtime for thirty bytes would be a dependency of everybody.
 */
import { grpcCodes, type GrpcCode } from '../core/errors.ts'

/** A detail as gRPC and Connect carry it: the type's full name and its bytes. */
export interface RpcDetail {
  readonly type: string
  readonly value: Uint8Array
}

/** `google.rpc.RetryInfo`: when to send the same request again. */
export function retryInfo(retryAfterMs: number): RpcDetail {
  const seconds = Math.floor(retryAfterMs / 1_000)
  const nanos = Math.round((retryAfterMs % 1_000) * 1_000_000)
  const duration = Buffer.concat([numberField(1, seconds), numberField(2, nanos)])
  return { type: 'google.rpc.RetryInfo', value: bytesField(1, duration) }
}

/** `google.rpc.ErrorInfo`: which error it is, for programs. */
export function errorInfo(reason: string, metadata: Readonly<Record<string, string>>): RpcDetail {
  const entries = Object.entries(metadata).map(([key, value]) =>
    bytesField(3, Buffer.concat([bytesField(1, Buffer.from(key)), bytesField(2, Buffer.from(value))])),
  )
  const parts = [bytesField(1, Buffer.from(reason)), bytesField(2, Buffer.from('waybill')), ...entries]
  return { type: 'google.rpc.ErrorInfo', value: Buffer.concat(parts) }
}

/** `google.rpc.Status`: what gRPC carries in the trailer `grpc-status-details-bin`. */
export function encodeStatus(code: GrpcCode, message: string, details: readonly RpcDetail[]): Buffer {
  const packed = details.map(({ type, value }) =>
    bytesField(3, Buffer.concat([bytesField(1, Buffer.from(`type.googleapis.com/${type}`)), bytesField(2, value)])),
  )
  return Buffer.concat([numberField(1, grpcCodes[code]), bytesField(2, Buffer.from(message)), ...packed])
}

function numberField(field: number, value: number): Buffer {
  return value === 0 ? Buffer.alloc(0) : Buffer.from([field << 3, ...varint(value)])
}

function bytesField(field: number, value: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from([(field << 3) | 2, ...varint(value.byteLength)]), value])
}

function varint(value: number): number[] {
  const bytes: number[] = []
  let rest = value
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128)
  return [...bytes, rest]
}
