/**
 * The google.pubsub.v1 API as gRPC service definitions, and a codec for any message of it.
 *
 * Messages become plain objects with camelCase names, numbers for 64-bit integers and names for enum values.
 * The calls that carry messages have codecs of their own (publish-codec, subscriber-codec): those keep bytes as bytes.
 */
import { readFileSync } from 'node:fs'
import protobuf from 'protobufjs'

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
  readonly root: protobuf.Root
  codec(typeName: string): Codec
  /** The methods of a service by name; `overrides` replaces the codecs of those that handle bytes themselves. */
  service(name: string, overrides?: Readonly<Record<string, Partial<MethodDefinition>>>): Record<string, MethodDefinition>
}

/**
 * The API and what it refers to, a file each in `api`. Only what is on the wire is there (names, numbers, types); a test compares
 * each of them with the descriptors that come with the official client. The server needs no Google package.
 */
const parts = ['well-known', 'expr', 'iam', 'rpc', 'schema', 'topic', 'subscription']

export function loadProtocol(): Protocol {
  const root = new protobuf.Root()
  for (const name of parts) protobuf.parse(readFileSync(new URL(`api/${name}.proto`, import.meta.url), 'utf8'), root)
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

function codecOf(type: protobuf.Type): Codec {
  return {
    encode: (value) => Buffer.from(type.encode(type.fromObject(value)).finish()),
    decode: (bytes) => type.toObject(type.decode(bytes), plain),
  }
}

function definitionOf(service: string, method: protobuf.Method): MethodDefinition {
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
