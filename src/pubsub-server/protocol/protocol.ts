/**
 * The google.pubsub.v1 API as gRPC service definitions, and a codec for any message of it.
 *
 * Messages become plain objects with camelCase names, numbers for 64-bit integers and names for enum values.
 * The calls that carry messages have codecs of their own (publish-codec, subscriber-codec): those keep bytes as bytes.
 */
import { exprProto, iamProto, rpcProto, wellKnownProto } from './common-proto.ts'
import { loadProtobuf } from './protobuf-runtime.ts'
import type { ProtoMethod, ProtoRoot, ProtoType } from './protobuf-runtime.ts'
import { schemaProto } from './schema-proto.ts'
import { subscriptionProto } from './subscription-proto.ts'
import { topicProto } from './topic-proto.ts'

export interface Codec {
  readonly encode: (value: object) => Buffer
  readonly decode: (bytes: Uint8Array) => object
}

/** What gRPC needs to serve one method. */
export interface MethodDefinition {
  readonly path: string
  readonly requestStream: boolean
  readonly responseStream: boolean
  readonly requestSerialize: (value: never) => Buffer
  readonly requestDeserialize: (bytes: Buffer) => unknown
  readonly responseSerialize: (value: never) => Buffer
  readonly responseDeserialize: (bytes: Buffer) => unknown
}

export interface Protocol {
  readonly root: ProtoRoot
  codec(typeName: string): Codec
  /** The methods of a service by name; `overrides` replaces the codecs of those that handle bytes themselves. */
  service(name: string, overrides?: Readonly<Record<string, Partial<MethodDefinition>>>): Record<string, MethodDefinition>
}

export function loadProtocol(): Protocol {
  const protobuf = loadProtobuf()
  const root = new protobuf.Root()
  for (const source of [wellKnownProto, exprProto, iamProto, rpcProto, schemaProto, topicProto, subscriptionProto]) {
    protobuf.parse(source, root)
  }
  root.resolveAll()
  return {
    root,
    codec: (typeName) => codecOf(root.lookupType(typeName)),
    service: (name, overrides = {}) => {
      const methods: Record<string, MethodDefinition> = {}
      for (const method of root.lookupService(name).methodsArray) {
        methods[method.name] = { ...definitionOf(name, method), ...overrides[method.name] }
      }
      return methods
    },
  }
}

const plain = { longs: Number, enums: String, bytes: Buffer, arrays: true, objects: true, oneofs: false } as const

function codecOf(type: ProtoType): Codec {
  return {
    encode: (value) => Buffer.from(type.encode(type.fromObject(value)).finish()),
    decode: (bytes) => type.toObject(type.decode(bytes), plain),
  }
}

function definitionOf(service: string, method: ProtoMethod): MethodDefinition {
  const { resolvedRequestType, resolvedResponseType } = method
  if (resolvedRequestType === null || resolvedResponseType === null) throw new Error(`${method.name} is unresolved`)
  const request = codecOf(resolvedRequestType)
  const response = codecOf(resolvedResponseType)
  return {
    path: `/${service}/${method.name}`,
    requestStream: method.requestStream === true,
    responseStream: method.responseStream === true,
    requestSerialize: request.encode,
    requestDeserialize: request.decode,
    responseSerialize: response.encode,
    responseDeserialize: response.decode,
  }
}
