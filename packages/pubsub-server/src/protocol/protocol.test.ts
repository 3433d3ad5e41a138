/** Our descriptors beside those that come with the official client: every name, number and type must be the same. */
import { readFileSync } from 'node:fs'
import protobuf from 'protobufjs'
import { describe, expect, test } from 'vitest'
import { loadProtocol } from './protocol.ts'

interface Field {
  readonly id: number
  readonly name: string
  readonly repeated: boolean
  readonly map: boolean
  readonly type: string
  readonly partOf?: { readonly name: string } | null
  readonly resolvedType: { readonly fullName: string } | null
}

interface Namespace {
  readonly fullName: string
  readonly nestedArray?: readonly Namespace[]
  readonly fieldsArray?: readonly Field[]
  readonly values?: Record<string, number>
  readonly methodsArray?: readonly {
    readonly name: string
    readonly requestStream?: boolean
    readonly responseStream?: boolean
    readonly resolvedRequestType: { readonly fullName: string }
    readonly resolvedResponseType: { readonly fullName: string }
  }[]
}

const theirs = googleDescriptors()
const ours = loadProtocol().root as unknown as Namespace

/** The API from the client's own descriptors, and what it refers to from the files of the library under it. */
function googleDescriptors(): protobuf.Root {
  const read = (path: string): string => readFileSync(new URL(`../../../../node_modules/${path}`, import.meta.url), 'utf8')
  const root = protobuf.Root.fromJSON(JSON.parse(read('@google-cloud/pubsub/build/protos/protos.json')))
  const files = ['iam/v1/iam_policy', 'iam/v1/policy', 'iam/v1/options', 'type/expr', 'rpc/status', 'rpc/error_details']
  for (const file of files) protobuf.parse(read(`google-gax/build/protos/google/${file}.proto`), root)
  if (root.lookup('google.protobuf.Any') === null) protobuf.parse(read('google-gax/build/protos/google/protobuf/any.proto'), root)
  root.resolveAll()
  return root
}

/** What is on the wire of a message, an enum or a service, in a form that can be compared. */
function wireOf(space: Namespace): unknown {
  if (space.values !== undefined) return { ...space.values }
  if (space.methodsArray !== undefined) {
    return Object.fromEntries(
      space.methodsArray.map((method) => [
        method.name,
        [
          method.resolvedRequestType.fullName,
          method.requestStream === true,
          method.resolvedResponseType.fullName,
          method.responseStream === true,
        ],
      ]),
    )
  }
  return Object.fromEntries(
    (space.fieldsArray ?? []).map((field) => [
      field.id,
      [field.name, field.resolvedType?.fullName ?? field.type, field.repeated, field.map, field.partOf?.name ?? null],
    ]),
  )
}

function parts(space: Namespace): Namespace[] {
  return (space.nestedArray ?? []).flatMap((nested) => [...(isComparable(nested) ? [nested] : []), ...parts(nested)])
}

const isComparable = (space: Namespace): boolean => 'fieldsArray' in space || 'values' in space || 'methodsArray' in space

const own = parts(ours)
const published = own.filter(({ fullName }) => fullName.startsWith('.google.pubsub.v1.'))

describe('the descriptors', () => {
  test.each(published.map((space) => [space.fullName, space] as const))('%s is as Google has it', (fullName, space) => {
    expect(wireOf(space)).toEqual(wireOf(theirs.lookup(fullName) as Namespace))
  })

  const others = own.filter(({ fullName }) => /^\.google\.(protobuf|iam\.v1|type|rpc)\./.test(fullName))

  test.each(others.map((space) => [space.fullName, space] as const))(
    '%s, which the API refers to, is as Google has it',
    (fullName, space) => {
      expect(wireOf(space)).toEqual(wireOf(theirs.lookup(fullName) as Namespace))
    },
  )

  test('every service and message of the published API is there, except the record of failed ingestion', () => {
    const missing = parts(theirs.lookup('google.pubsub.v1') as Namespace)
      .map(({ fullName }) => fullName)
      .filter((name) => !own.some(({ fullName }) => fullName === name))
    expect(missing.filter((name) => !name.startsWith('.google.pubsub.v1.IngestionFailureEvent'))).toEqual([])
    expect(published.length).toBeGreaterThan(80)
  })
})
