import { isDeepStrictEqual } from 'node:util'
import { create, createFileRegistry, fromBinary, toBinary, toJson, type DescMessage } from '@bufbuild/protobuf'
import {
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
  FileDescriptorProtoSchema,
} from '@bufbuild/protobuf/wkt'
import { describe, expect, test } from 'vitest'
import { protobufProblems } from './protobuf-compatibility.ts'

type Field = readonly [name: string, number: number, type: Type, rest?: RestOfField]

interface RestOfField {
  /** The message or the enum. */
  readonly of?: string | undefined
  readonly isList?: boolean
  /** Of a map: what its keys are. */
  readonly key?: Type
  readonly oneof?: string | undefined
}

interface RestOfFile {
  /** In proto2 enums are closed, and there are groups. */
  readonly syntax?: 'proto2' | 'proto3'
  readonly enums?: Readonly<Record<string, readonly number[]>>
}

/** The first message of a file, as protoc would describe it. */
function compile(messages: Readonly<Record<string, readonly Field[]>>, rest: RestOfFile = {}): DescMessage {
  const { syntax = 'proto3', enums = {} } = rest
  const file = create(FileDescriptorProtoSchema, {
    name: 'video.proto',
    package: 'shop',
    syntax,
    messageType: Object.entries(messages).map(([name, fields]) => messageOf(name, fields)),
    enumType: Object.entries(enums).map(([name, numbers]) => ({
      name,
      value: numbers.map((number, index) => ({ name: `${name.toUpperCase()}_${'ABC'[index]}`, number })),
    })),
  })
  return createFileRegistry(file, () => undefined).getMessage(`shop.${Object.keys(messages)[0]}`)!
}

function messageOf(message: string, fields: readonly Field[]) {
  const oneofs = [...new Set(fields.flatMap(([, , , rest]) => rest?.oneof ?? []))]
  return {
    name: message,
    oneofDecl: oneofs.map((name) => ({ name })),
    field: fields.map(([name, number, type, { of, isList = false, key, oneof } = {}]) => ({
      ...fieldOf(name, number, key === undefined ? type : Type.MESSAGE, key === undefined ? of : `${message}.${name}Entry`),
      label: isList || key !== undefined ? Label.REPEATED : Label.OPTIONAL,
      ...(oneof === undefined ? {} : { oneofIndex: oneofs.indexOf(oneof) }),
    })),
    // What protoc makes of a map.
    nestedType: fields.flatMap(([name, , type, { of, key } = {}]) => {
      if (key === undefined) return []
      return [
        { name: `${name}Entry`, options: { mapEntry: true }, field: [fieldOf('key', 1, key), fieldOf('value', 2, type, of)] },
      ]
    }),
  }
}

function fieldOf(name: string, number: number, type: Type, of?: string) {
  return { name, number, type, label: Label.OPTIONAL, typeName: of === undefined ? '' : `.shop.${of}` }
}

const videoFields: readonly Field[] = [
  ['title', 1, Type.STRING],
  ['length_seconds', 2, Type.INT32],
  ['tags', 4, Type.STRING, { isList: true }],
  ['author', 5, Type.MESSAGE, { of: 'Author' }],
]
const authorFields: readonly Field[] = [
  ['name', 1, Type.STRING],
  ['mentor', 2, Type.MESSAGE, { of: 'Author' }],
]
const Video = compile({ Video: videoFields, Author: authorFields })

function readAs(older: DescMessage, newer: DescMessage, value: boolean | number | bigint): bigint | undefined {
  try {
    const bytes = toBinary(older, create(older, { value }))
    return BigInt((fromBinary(newer, bytes) as unknown as { value: boolean | number | bigint }).value)
  } catch {
    return undefined
  }
}

describe('the compatibility check', () => {
  const problems = (change: (fields: Field[]) => Field[]): readonly string[] =>
    protobufProblems(Video, compile({ Video: change([...videoFields]), Author: authorFields }))

  test('lets fields be added, removed and renamed, and numbers grow', () => {
    expect(problems((fields) => [...fields, ['rating', 9, Type.DOUBLE]])).toEqual([])
    expect(problems((fields) => fields.filter(([name]) => name !== 'title'))).toEqual([])
    expect(problems((fields) => fields.map(([name, ...rest]) => [name === 'title' ? 'headline' : name, ...rest]))).toEqual([])
    expect(problems((fields) => fields.map((field) => (field[1] === 2 ? ['length_seconds', 2, Type.INT64] : field)))).toEqual([])
  })

  test('refuses a number that means something else now', () => {
    expect(problems((fields) => fields.map((field) => (field[1] === 1 ? ['title', 1, Type.INT32] : field)))).toEqual([
      'shop.Video.title (1) was string and is now int32',
    ])
    expect(
      problems((fields) => fields.map((field) => (field[1] === 2 ? ['length_seconds', 2, Type.SINT32] : field))),
    ).toHaveLength(1)
    expect(problems((fields) => fields.map((field) => (field[1] === 4 ? ['tags', 4, Type.STRING] : field)))).toEqual([
      'shop.Video.tags (4) was a list of string and is now string',
    ])
    const inside = compile({ Video: videoFields, Author: [['name', 1, Type.INT32]] })
    expect(protobufProblems(Video, inside)).toEqual(['shop.Author.name (1) was string and is now int32'])
  })

  /** The least and the greatest that each whole number can be. */
  const extremes = new Map<Type, readonly (boolean | number | bigint)[]>([
    [Type.BOOL, [true]],
    [Type.INT32, [-(2 ** 31), 2 ** 31 - 1]],
    [Type.SINT32, [-(2 ** 31), 2 ** 31 - 1]],
    [Type.SFIXED32, [-(2 ** 31), 2 ** 31 - 1]],
    [Type.UINT32, [2 ** 32 - 1]],
    [Type.FIXED32, [2 ** 32 - 1]],
    [Type.INT64, [-(2n ** 63n), 2n ** 63n - 1n]],
    [Type.SINT64, [-(2n ** 63n), 2n ** 63n - 1n]],
    [Type.SFIXED64, [-(2n ** 63n), 2n ** 63n - 1n]],
    [Type.UINT64, [2n ** 64n - 1n]],
    [Type.FIXED64, [2n ** 64n - 1n]],
  ])
  const numberOf = (type: Type): DescMessage => compile({ Number: [['value', 1, type]] })

  test.each([...extremes.keys()].map((type) => [Type[type], type] as const))(
    'lets %s become exactly what reads all it can be',
    (_name, before) => {
      const older = numberOf(before)
      const values = extremes.get(before) ?? []
      for (const after of extremes.keys()) {
        const newer = numberOf(after)
        const isRead = values.every((value) => readAs(older, newer, value) === BigInt(value))
        expect(protobufProblems(older, newer), `${Type[before]} to ${Type[after]}`).toHaveLength(isRead ? 0 : 1)
      }
    },
  )
})

describe('the compatibility check of enums', () => {
  const one = (type: Type, rest: RestOfFile = {}): DescMessage =>
    compile({ Thing: [['value', 1, type, type === Type.ENUM ? { of: 'Kind' } : {}]] }, { syntax: 'proto2', ...rest })
  const closed = (...numbers: number[]): DescMessage => one(Type.ENUM, { enums: { Kind: numbers } })
  const open = (...numbers: number[]): DescMessage => one(Type.ENUM, { enums: { Kind: numbers }, syntax: 'proto3' })

  /** Each with what it can be; an open enum can be what is not on its list. */
  const kinds: readonly (readonly [name: string, schema: DescMessage, values: readonly (number | boolean)[]])[] = [
    ['open 0, 1', open(0, 1), [1, 7, -1]],
    ['open 0, 2', open(0, 2), [2, 7, -1]],
    ['closed 0, 1', closed(0, 1), [0, 1]],
    ['closed 1, 0', closed(1, 0), [0, 1]],
    ['closed 0, 1, 2', closed(0, 1, 2), [0, 1, 2]],
    ['closed 0, -1', closed(0, -1), [0, -1]],
    ['bool', one(Type.BOOL), [false, true]],
    ['int32', one(Type.INT32), [7, -1]],
    ['uint32', one(Type.UINT32), [7, 2 ** 32 - 1]],
  ]

  test.each(kinds)('lets %s become exactly what reads all it can be', (name, older, values) => {
    for (const [next, newer] of kinds) {
      const isWhole = values.every((value) => readAs(older, newer, value) === BigInt(value))
      expect(protobufProblems(older, newer), `${name} to ${next}`).toHaveLength(isWhole ? 0 : 1)
    }
  })

  test('names a closed enum, and the values it has lost', () => {
    expect(protobufProblems(one(Type.INT32), closed(0, 1))).toEqual([
      'shop.Thing.value (1) was int32 and is now closed enum shop.Kind',
    ])
    expect(protobufProblems(closed(0, 1, 2), closed(0))).toEqual([
      'shop.Thing.value (1) was closed enum shop.Kind and is now closed enum shop.Kind without KIND_B (1), KIND_C (2)',
    ])
  })

  test.each<[string, RestOfField]>([
    ['lists', { isList: true }],
    ['maps', { key: Type.STRING }],
  ])('holds in %s too, where protobuf-es is laxer than Protobuf', (_name, rest) => {
    const schema = (...numbers: number[]): DescMessage =>
      compile({ Thing: [['kinds', 1, Type.ENUM, { ...rest, of: 'Kind' }]] }, { syntax: 'proto2', enums: { Kind: numbers } })
    expect(protobufProblems(schema(0, 1), schema(0, 1, 2))).toEqual([])
    expect(protobufProblems(schema(0, 1, 2), schema(0, 1))).toHaveLength(1)
  })
})

/** Whether the newer schema reads just what the older one wrote, as JSON: there a case of a oneof looks like any field. */
function isRead(older: DescMessage, newer: DescMessage, data: Record<string, unknown>): boolean {
  const bytes = toBinary(older, create(older, data))
  const read = (schema: DescMessage) => toJson(schema, fromBinary(schema, bytes), { useProtoFieldName: true })
  try {
    return isDeepStrictEqual(read(newer), read(older))
  } catch {
    return false
  }
}

describe('the compatibility check of oneofs', () => {
  /** Three fields, each in the oneof that is named for it, or in none. */
  const schema = (...oneofs: readonly (string | undefined)[]): DescMessage =>
    compile({ Video: ['a', 'b', 'c'].map((name, index) => [name, index + 1, Type.STRING, { oneof: oneofs[index] }]) })
  const plain = { a: 'x', b: 'y', c: 'z' }
  const together = (oneof: string, ...names: string[]) => [`${names.join(', ')} were not in one oneof and now are (${oneof})`]

  test.each<[string, DescMessage, DescMessage, Record<string, unknown>, readonly string[]]>([
    ['one field into a oneof', schema(), schema('one'), plain, []],
    ['fields into oneofs of their own', schema(), schema('one', 'two', 'three'), plain, []],
    ['a oneof into two', schema('one', 'one'), schema('one', 'two'), { one: { case: 'b', value: 'y' }, c: 'z' }, []],
    ['a oneof into fields', schema('one', 'one'), schema(), { one: { case: 'a', value: 'x' } }, []],
    ['a oneof to another name', schema('one', 'one'), schema('two', 'two'), { one: { case: 'a', value: 'x' } }, []],
    ['two fields into one oneof', schema(), schema('one', 'one'), plain, together('one', 'shop.Video.a (1)', 'shop.Video.b (2)')],
    [
      'a field into a oneof that was there',
      schema(undefined, 'one', 'one'),
      schema('one', 'one', 'one'),
      { a: 'x', one: { case: 'c', value: 'z' } },
      together('one', 'shop.Video.a (1)', 'shop.Video.b (2)', 'shop.Video.c (3)'),
    ],
    [
      'two oneofs into one',
      schema('one', 'two'),
      schema('one', 'one'),
      { one: { case: 'a', value: 'x' }, two: { case: 'b', value: 'y' } },
      together('one', 'shop.Video.a (1)', 'shop.Video.b (2)'),
    ],
  ])('knows whether all values are kept: %s', (_name, older, newer, data, problems) => {
    expect(protobufProblems(older, newer)).toEqual(problems)
    expect(isRead(older, newer, data)).toBe(problems.length === 0)
  })
})

describe('the compatibility check of groups and map keys', () => {
  const part = (type: Type, isList = false): DescMessage =>
    compile({ Thing: [['part', 1, type, { of: 'Part', isList }]], Part: [['name', 1, Type.STRING]] }, { syntax: 'proto2' })
  const map = (key: Type): DescMessage => compile({ Thing: [['names', 1, Type.STRING, { key }]] })

  test.each<[string, DescMessage, DescMessage, Record<string, unknown>, readonly string[]]>([
    [
      'a group to a message',
      part(Type.GROUP),
      part(Type.MESSAGE),
      { part: { name: 'x' } },
      ['shop.Thing.part (1) was group shop.Part and is now shop.Part'],
    ],
    [
      'a message to a group',
      part(Type.MESSAGE),
      part(Type.GROUP),
      { part: { name: 'x' } },
      ['shop.Thing.part (1) was shop.Part and is now group shop.Part'],
    ],
    [
      'groups to messages',
      part(Type.GROUP, true),
      part(Type.MESSAGE, true),
      { part: [{ name: 'x' }] },
      ['shop.Thing.part (1) was a list of group shop.Part and is now a list of shop.Part'],
    ],
    ['a group to a group', part(Type.GROUP), part(Type.GROUP), { part: { name: 'x' } }, []],
    ['keys to wider ones', map(Type.INT32), map(Type.INT64), { names: { [-(2 ** 31)]: 'x' } }, []],
    [
      'keys to narrower ones',
      map(Type.INT64),
      map(Type.INT32),
      { names: { [2 ** 40]: 'x' } },
      ['shop.Thing.names (1) was a map of int64 to string and is now a map of int32 to string'],
    ],
  ])('knows whether it can be read, and says what has changed: %s', (_name, older, newer, data, problems) => {
    expect(protobufProblems(older, newer)).toEqual(problems)
    expect(isRead(older, newer, data)).toBe(problems.length === 0)
  })
})
