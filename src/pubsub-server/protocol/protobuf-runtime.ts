/**
 * Finds protobufjs where `@grpc/grpc-js` keeps it.
 *
 * It is a dependency of gRPC's own loader, so whoever installed gRPC has it, also under package managers that
 * hide what was not asked for by name. Only the few members used here are described.
 */
import { createRequire } from 'node:module'
import { WaybillError } from '../../core/errors.ts'

export interface ProtoType {
  readonly name: string
  readonly fullName: string
  readonly nestedArray: readonly unknown[]
  readonly fieldsArray: readonly ProtoField[]
  encode(message: unknown): { finish(): Uint8Array }
  decode(bytes: Uint8Array): object
  fromObject(value: object): object
  toObject(message: object, options: object): object
  verify(value: object): string | null
}

export interface ProtoField {
  readonly id: number
  readonly name: string
  readonly type: string
  readonly repeated: boolean
  readonly required: boolean
  readonly map: boolean
  readonly resolvedType: { readonly fullName: string; readonly values?: Record<string, number> } | null
}

export interface ProtoMethod {
  readonly name: string
  readonly requestStream?: boolean
  readonly responseStream?: boolean
  readonly resolvedRequestType: ProtoType | null
  readonly resolvedResponseType: ProtoType | null
}

export interface ProtoService {
  readonly fullName: string
  readonly methodsArray: readonly ProtoMethod[]
}

export interface ProtoRoot {
  readonly nestedArray: readonly unknown[]
  lookupType(name: string): ProtoType
  lookupService(name: string): ProtoService
  resolveAll(): ProtoRoot
}

export interface ProtobufRuntime {
  readonly Root: new () => ProtoRoot
  readonly Type: new (...args: never[]) => ProtoType
  parse(source: string, root: ProtoRoot, options?: { keepCase?: boolean }): { imports?: string[] }
}

/** Loads protobufjs; the reason it is missing names the package to install. */
export function loadProtobuf(): ProtobufRuntime {
  try {
    const fromGrpc = createRequire(import.meta.resolve('@grpc/grpc-js'))
    return createRequire(fromGrpc.resolve('@grpc/proto-loader'))('protobufjs') as ProtobufRuntime
  } catch (cause) {
    throw new WaybillError('MISSING_PACKAGE', 'The Pub/Sub server needs @grpc/grpc-js: npm install @grpc/grpc-js', { cause })
  }
}
