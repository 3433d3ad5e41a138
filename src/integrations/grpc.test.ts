import { BinaryReader } from '@bufbuild/protobuf/wire'
import { Client, credentials, Metadata, Server, ServerCredentials, type ServiceError, type handleUnaryCall } from '@grpc/grpc-js'
import { expect, test } from 'vitest'
import { commandErrorCodes, failed, type Outcome } from '../command/model/outcome.ts'
import { connectError, grpcError } from './grpc.ts'

/** The fields of a Protobuf message, by number; read by another implementation than the one that wrote them. */
function fields(bytes: Uint8Array): Map<number, (number | Buffer)[]> {
  const reader = new BinaryReader(bytes)
  const found = new Map<number, (number | Buffer)[]>()
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag()
    const value = wire === 0 ? Number(reader.int64()) : Buffer.from(reader.bytes())
    found.set(field, [...(found.get(field) ?? []), value])
  }
  return found
}

const text = (value: number | Buffer | undefined): string => (Buffer.isBuffer(value) ? value.toString() : String(value))

const rejected: Outcome = { status: 'rejected', reason: 'not-enough', details: { have: 3 }, replayed: false }

test.each([
  ['IN_PROGRESS', 10],
  ['OVERLOADED', 8],
] as const)('a client of gRPC gets the code, and when to ask again in RetryInfo: %s', async (code, number) => {
  const outcome = failed(code, 'Not now.')
  const server = new Server()
  const bytes = { serialize: (value: Buffer) => value, deserialize: (value: Buffer) => value }
  const definition = {
    path: '/bank.Bank/Deposit',
    requestStream: false,
    responseStream: false,
    requestSerialize: bytes.serialize,
    requestDeserialize: bytes.deserialize,
    responseSerialize: bytes.serialize,
    responseDeserialize: bytes.deserialize,
  }
  const refuse: handleUnaryCall<Buffer, Buffer> = (_call, callback) => callback(grpcError(outcome, new Metadata()) ?? null)
  server.addService({ deposit: definition }, { deposit: refuse })
  const port = await new Promise<number>((done, fail) =>
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? done(bound) : fail(error),
    ),
  )
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure())
  const error = await new Promise<ServiceError>((done, fail) =>
    client.makeUnaryRequest(definition.path, bytes.serialize, bytes.deserialize, Buffer.alloc(0), (refusal) =>
      refusal === null ? fail(new Error('It was not refused.')) : done(refusal),
    ),
  )
  client.close()
  server.forceShutdown()
  expect(error).toMatchObject({ code: number, details: 'Not now.' })
  const status = fields(error.metadata.get('grpc-status-details-bin')[0] as Buffer)
  expect(status.get(1)).toEqual([number])
  const details = (status.get(3) ?? []).map((any) => fields(any as Buffer))
  expect(details.map((any) => text(any.get(1)?.[0]))).toEqual([
    'type.googleapis.com/google.rpc.ErrorInfo',
    'type.googleapis.com/google.rpc.RetryInfo',
  ])
  expect(text(fields(details[0]?.get(2)?.[0] as Buffer).get(1)?.[0])).toBe(code)
  const delay = fields(fields(details[1]?.get(2)?.[0] as Buffer).get(1)?.[0] as Buffer)
  expect(delay.get(1)).toEqual([1])
})

test('delays below a second go as nanoseconds, and long texts keep their length', () => {
  const metadata = new Metadata()
  grpcError(failed('VERSION_CONFLICT', 'x'.repeat(300)), metadata)
  const status = fields(metadata.get('grpc-status-details-bin')[0] as Buffer)
  expect(text(status.get(2)?.[0])).toHaveLength(300)
  const retry = fields((status.get(3) ?? [])[1] as Buffer)
  expect([...fields(fields(retry.get(2)?.[0] as Buffer).get(1)?.[0] as Buffer)]).toEqual([[2, [100_000_000]]])
})

test('an error of Connect has the same code and details; a success is none', () => {
  class ConnectError extends Error {
    details: unknown[] = []
    readonly code: number
    constructor(message: string, code: number) {
      super(message)
      this.code = code
    }
  }
  const error = connectError(rejected, ConnectError)
  expect(error).toMatchObject({ code: 9, details: [{ type: 'google.rpc.ErrorInfo' }] })
  const info = fields((error as { details: { value: Uint8Array }[] } | undefined)?.details[0]?.value ?? new Uint8Array())
  expect(text(info.get(1)?.[0])).toBe('not-enough')
  const entry = fields(info.get(3)?.[0] as Buffer)
  expect([text(entry.get(1)?.[0]), text(entry.get(2)?.[0])]).toEqual(['have', '3'])
  const executed: Outcome = { status: 'executed', response: {}, token: undefined, attempts: 1 }
  expect(connectError(executed, ConnectError)).toBeUndefined()
  expect(grpcError(executed, new Metadata())).toBeUndefined()
})

test('every code has the number that the error table gives it', () => {
  const numbers = commandErrorCodes.map((code) => [code, grpcError(failed(code, ''), new Metadata())?.code])
  expect(Object.fromEntries(numbers)).toEqual({
    INVALID_INPUT: 3,
    REQUEST_ID_MISSING: 3,
    IN_PROGRESS: 10,
    ALREADY_COMMITTED: 6,
    KEY_REUSED: 3,
    VERSION_CONFLICT: 10,
    PRECONDITION_FAILED: 9,
    OVERLOADED: 8,
    ABORTED: 10,
    UNAVAILABLE: 14,
  })
})
