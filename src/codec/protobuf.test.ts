import { create, createFileRegistry, type DescMessage } from '@bufbuild/protobuf'
import {
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
  FileDescriptorProtoSchema,
  file_google_protobuf_wrappers as wrappers,
} from '@bufbuild/protobuf/wkt'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { state } from '../core/event/event.ts'
import { readData, stream } from '../core/event/stream.ts'
import { protobuf } from './protobuf.ts'

type Field = readonly [name: string, number: number, type: Type, label?: Label, typeName?: string]

/** A proto3 file with the messages given, as protoc would describe it. */
function compile(messages: Readonly<Record<string, readonly Field[]>>): (name: string) => DescMessage {
  const file = create(FileDescriptorProtoSchema, {
    name: 'video.proto',
    package: 'shop',
    syntax: 'proto3',
    dependency: [wrappers.proto.name],
    messageType: Object.entries(messages).map(([name, fields]) => ({
      name,
      field: fields.map(([field, number, type, label = Label.OPTIONAL, typeName = '']) => ({
        name: field,
        number,
        type,
        label,
        typeName,
      })),
      ...(name === 'Video' ? { nestedType: [labelsEntry] } : {}),
    })),
  })
  const registry = createFileRegistry(file, () => wrappers)
  return (name) => registry.getMessage(`shop.${name}`)!
}

/** What protoc makes of `map<string, string> labels`. */
const labelsEntry = {
  name: 'LabelsEntry',
  options: { mapEntry: true },
  field: [
    { name: 'key', number: 1, type: Type.STRING, label: Label.OPTIONAL },
    { name: 'value', number: 2, type: Type.STRING, label: Label.OPTIONAL },
  ],
}

const videoFields: readonly Field[] = [
  ['title', 1, Type.STRING],
  ['length_seconds', 2, Type.INT32],
  ['views', 3, Type.INT64],
  ['tags', 4, Type.STRING, Label.REPEATED],
  ['author', 5, Type.MESSAGE, Label.OPTIONAL, '.shop.Author'],
  ['labels', 6, Type.MESSAGE, Label.REPEATED, '.shop.Video.LabelsEntry'],
  ['thumbnail', 7, Type.BYTES],
  ['subtitle', 8, Type.MESSAGE, Label.OPTIONAL, '.google.protobuf.StringValue'],
  ['likes', 9, Type.MESSAGE, Label.OPTIONAL, '.google.protobuf.Int64Value'],
  ['notes', 10, Type.MESSAGE, Label.REPEATED, '.google.protobuf.StringValue'],
]
const authorFields: readonly Field[] = [
  ['name', 1, Type.STRING],
  ['mentor', 2, Type.MESSAGE, Label.OPTIONAL, '.shop.Author'],
]
const Video = compile({ Video: videoFields, Author: authorFields })('Video')
// The schema is made at run time here, so its shape is unknown to the compiler.
const codec = protobuf(Video)
const encode = (data: object): Uint8Array => codec.encode(data as never) as Uint8Array

const refused = expect.objectContaining({ code: 'INVALID_INPUT' }) as Error

const tooLarge = expect.objectContaining({ code: 'TOO_LARGE' }) as Error

function codeOf(read: () => unknown): unknown {
  try {
    read()
    return 'read'
  } catch (error) {
    return (error as { code?: unknown }).code
  }
}

describe('protobuf', () => {
  test('writes the bytes that Protobuf defines', () => {
    expect(Buffer.from(encode({ title: 'Hi', lengthSeconds: 150, tags: ['a'] })).toString('hex')).toBe('0a024869109601220161')
    expect(codec.contentType).toBe('application/protobuf')
  })

  test.each<[string, number, number[]]>([
    ['empty messages in a list', 300_000, [0x52, 0]],
    ['entries of a map', 300_000, [0x32, 0]],
    ['texts in a list', 300_000, [0x22, 0]],
    ['fields that the schema does not have', 300_000, [0x7a, 0]],
    ['groups that the schema does not have', 150_000, [0x7b, 0x7c]],
    ['messages inside messages', 100_000, [0x2a, 4, 0x12, 2, 0x12, 0]],
  ])('refuses %s that are more values than the budget has', (_name, times, part) => {
    const bytes = Buffer.alloc(times * part.length, Buffer.from(part))
    expect(() => codec.decode(bytes)).toThrow(tooLarge)
    expect(codeOf(() => protobuf(Video, { maxValues: 1_000_000 }).decode(bytes))).toBe('read')
  })

  test('counts each number of a packed list, whether it is a number of its own length or of four or eight bytes', () => {
    const packed = compile({
      Video: [
        ['small', 1, Type.INT32, Label.REPEATED],
        ['four', 2, Type.FIXED32, Label.REPEATED],
        ['eight', 3, Type.DOUBLE, Label.REPEATED],
        ['flags', 4, Type.BOOL, Label.REPEATED],
        ['labels', 6, Type.MESSAGE, Label.REPEATED, '.shop.Video.LabelsEntry'],
      ],
    })('Video')
    const list = (field: number, bytes: number): Buffer =>
      Buffer.concat([
        Buffer.from([field * 8 + 2, (bytes % 128) + 128, (Math.floor(bytes / 128) % 128) + 128, Math.floor(bytes / 16_384)]),
        Buffer.alloc(bytes),
      ])
    for (const [field, size] of [
      [1, 1],
      [2, 4],
      [3, 8],
      [4, 1],
    ] as const) {
      const bytes = list(field, 20_000 * size)
      expect(codeOf(() => protobuf(packed, { maxValues: 20_001 }).decode(bytes))).toBe('read')
      expect(() => protobuf(packed, { maxValues: 19_999 }).decode(bytes)).toThrow(tooLarge)
    }
  })

  test('refuses the same to its writer, and keeps nothing of a field that it does not know', () => {
    const small = protobuf(Video, { maxValues: 10 })
    expect(() => small.encode({ tags: Array(11).fill('') })).toThrow(tooLarge)
    expect(small.decode(small.encode({ tags: Array(10).fill('') }) as Uint8Array)).toMatchObject({
      tags: Array(10).fill(''),
    })
    expect(small.decode(Buffer.from([0x7a, 1, 65]))).not.toHaveProperty('$unknown')
    expect(() => protobuf(Video, { maxValue: 1 } as never)).toThrow(/Did you mean "maxValues"/)
  })

  test('bytes at random, and more of them than the budget has values, end as read or refused', () => {
    const tight = protobuf(Video, { maxValues: 4 })
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        expect(['read', 'INVALID_INPUT', 'TOO_LARGE']).toContain(codeOf(() => tight.decode(bytes)))
      }),
    )
  })

  test('reads what it wrote', () => {
    const video = fc.record({
      title: fc.string(),
      lengthSeconds: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
      views: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
      tags: fc.array(fc.string()),
      author: fc.record({ name: fc.string(), mentor: fc.record({ name: fc.string() }) }),
      labels: fc.dictionary(
        fc.string().filter((key) => key !== '__proto__'),
        fc.string(),
      ),
      thumbnail: fc.uint8Array(),
    })
    fc.assert(
      fc.property(video, (data) => {
        expect(codec.decode(encode(data))).toMatchObject({ ...data, labels: { ...data.labels } })
      }),
    )
  })

  test('reads a wrapper as its value, in a list as a message, and one that is absent as absent', () => {
    const data = { subtitle: '', likes: 5n, notes: [{ value: 'x' }] }
    expect(codec.decode(encode(data))).toMatchObject(data)
    const bare = codec.decode(encode({ title: 'Hi' }))
    expect(bare).not.toHaveProperty('subtitle')
    expect(bare).not.toHaveProperty('likes')
  })

  test.each<[string, object]>([
    ['a number for text', { title: 5 }],
    ['text for a number', { lengthSeconds: '5' }],
    ['a number out of range', { lengthSeconds: 2 ** 31 }],
    ['a fraction for a whole number', { lengthSeconds: 1.5 }],
    ['a field that the message does not have', { titel: 'x' }],
    ['a field that a message inside does not have', { author: { nom: 'x' } }],
    ['one item for a list', { tags: 'a' }],
    ['null', { title: null }],
    ['a wrapper where its value belongs', { subtitle: { value: 'x' } }],
    ['a number for the text of a wrapper', { subtitle: 5 }],
    ['a number for the text of a wrapper in a list', { notes: [{ value: 5 }] }],
    ['text that is no Unicode', { title: '\ud800' }],
    ['a key that is no Unicode', { labels: { '\ud800': 'x' } }],
    ['a key that would change an object', { labels: Object.fromEntries([['__proto__', 'x']]) }],
  ])('refuses %s, when the event is added', (_name, data) => {
    expect(() => encode(data)).toThrow(refused)
  })

  test('refuses bytes that are cut, foreign, too deep, or carry __proto__ as a key', () => {
    const bytes = encode({ title: 'a long enough title', tags: ['one', 'two'] })
    for (let length = 1; length < bytes.length; length += 1) {
      const cut = bytes.subarray(0, length)
      expect(['read', 'INVALID_INPUT']).toContain(codeOf(() => codec.decode(cut)))
    }
    expect(() => codec.decode(bytes.subarray(0, 5))).toThrow(refused)
    expect(() => codec.decode(Buffer.from('{"title":"Hi"}'))).toThrow(refused)
    const hostile = Buffer.from(
      Buffer.from(encode({ labels: { aaaaaaaaa: 'x' } }))
        .toString('latin1')
        .replace('aaaaaaaaa', '__proto__'),
      'latin1',
    )
    expect(() => codec.decode(hostile)).toThrow(refused)
    let deep: object = { name: 'x' }
    for (let i = 0; i < 5_000; i += 1) deep = { mentor: deep }
    expect(() => encode({ author: deep })).toThrow(refused)
  })

  test('never throws anything but INVALID_INPUT at random bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        expect(['read', 'INVALID_INPUT']).toContain(codeOf(() => codec.decode(bytes)))
      }),
    )
  })

  test('an event of an older schema version is read with its schema and goes through its upcaster', async () => {
    const Old = compile({
      Video: [
        ['name', 1, Type.STRING],
        ['minutes', 2, Type.STRING],
      ],
      Author: authorFields,
    })('Video')
    const videos = stream('video', {
      topic: 'video.events',
      events: {
        VideoPublished: state(protobuf(Video, { versions: { 1: Old } }), {
          schemaVersion: 2,
          upcast: {
            1: (old: { name: string; minutes: string }) => ({ title: old.name, lengthSeconds: Number(old.minutes) * 60 }),
          },
        }),
      },
    })
    const bytes = await protobuf(Old).encode({ name: 'Hi', minutes: '2' })
    const type = videos.events.VideoPublished as never
    expect(await readData(type, bytes, 1)).toMatchObject({ title: 'Hi', lengthSeconds: 120 })
    await expect(readData(type, bytes, 3)).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
  })
})
