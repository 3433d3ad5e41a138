import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { state } from '../core/event.ts'
import { readData, stream } from '../core/stream.ts'
import { avro, avroProblems, type AvroSchema } from './avro.ts'

interface Video {
  title: string
  seconds: number
  tags: string[]
  labels: Record<string, string>
  author: { name: string } | null
}

const schema: AvroSchema = {
  type: 'record',
  name: 'Video',
  fields: [
    { name: 'title', type: 'string' },
    { name: 'seconds', type: 'int' },
    { name: 'tags', type: { type: 'array', items: 'string' } },
    { name: 'labels', type: { type: 'map', values: 'string' } },
    {
      name: 'author',
      type: ['null', { type: 'record', name: 'Author', fields: [{ name: 'name', type: 'string' }] }],
      default: null,
    },
  ],
}
const codec = avro<Video>(schema)
const video: Video = { title: 'Hi', seconds: 150, tags: ['a'], labels: {}, author: null }
const encode = (data: unknown): Uint8Array => codec.encode(data as Video) as Uint8Array
const refused = expect.objectContaining({ code: 'INVALID_INPUT' }) as Error

function codeOf(read: () => unknown): unknown {
  try {
    read()
    return 'read'
  } catch (error) {
    return (error as { code?: unknown }).code
  }
}

describe('avro', () => {
  test('writes the bytes that Avro defines', () => {
    expect(Buffer.from(encode(video)).toString('hex')).toBe('044869ac02020261000000')
    expect(codec.contentType).toBe('avro/binary')
    expect(JSON.parse(codec.definition)).toEqual(schema)
  })

  test('reads what it wrote', () => {
    const videos = fc.record({
      title: fc.string(),
      seconds: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
      tags: fc.array(fc.string()),
      labels: fc.dictionary(
        fc.string().filter((key) => key !== '__proto__'),
        fc.string(),
      ),
      author: fc.option(fc.record({ name: fc.string() })),
    })
    fc.assert(
      fc.property(videos, (data) => {
        expect(codec.decode(encode(data))).toEqual({ ...data, labels: { ...data.labels } })
      }),
    )
  })

  test.each<[string, object]>([
    ['a number for text', { title: 5 }],
    ['a number out of range', { seconds: 2 ** 31 }],
    ['a missing field', { title: undefined }],
    ['a field that the schema does not have', { titel: 'x' }],
    ['text with half a surrogate pair', { title: 'a\ud800b' }],
    ['a long text with half a surrogate pair', { title: `${'a'.repeat(100)}\udc00` }],
    ['a key with half a surrogate pair', { labels: { '\ud800': 'x' } }],
    ['a key that would change an object', { labels: Object.fromEntries([['__proto__', 'x']]) }],
  ])('refuses %s, when the event is added', (_name, part) => {
    expect(() => encode({ ...video, ...part })).toThrow(refused)
  })

  test('takes the characters that stand in for such text, and those that begin with the same byte', () => {
    const given = { ...video, title: 'a\ufffdb', tags: ['\ud55c\uad6d\uc5b4', '\u{1f600}'] }
    expect(codec.decode(encode(given))).toEqual(given)
  })

  test('names the fields that do not fit, never their values', () => {
    expect(() => encode({ ...video, title: 5, seconds: 'secret' })).toThrow('title, seconds')
    expect(() => encode({ ...video, seconds: 'secret' })).not.toThrow('secret')
  })

  test('refuses bytes that are cut, too long, foreign, or carry __proto__ as a key', () => {
    const bytes = encode({ ...video, title: 'a long enough title', labels: { aaaaaaaaa: 'x' } })
    for (let length = 0; length < bytes.length; length += 1)
      expect(() => codec.decode(bytes.subarray(0, length))).toThrow(refused)
    expect(() => codec.decode(Buffer.concat([bytes, Buffer.from([0])]))).toThrow(refused)
    const hostile = Buffer.from(Buffer.from(bytes).toString('latin1').replace('aaaaaaaaa', '__proto__'), 'latin1')
    expect(() => codec.decode(hostile)).toThrow(refused)
  })

  test('refuses data nested deeper than the stack', () => {
    const chain = avro({ type: 'record', name: 'Link', fields: [{ name: 'next', type: ['null', 'Link'] }] })
    expect(() => chain.decode(Buffer.alloc(2_000_000, 2))).toThrow(refused)
  })

  test('never throws anything but INVALID_INPUT at random bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        expect(['read', 'INVALID_INPUT']).toContain(codeOf(() => codec.decode(bytes)))
      }),
    )
  })

  test('refuses a schema that is none, and lists whose items take no bytes', () => {
    const invalid = expect.objectContaining({ code: 'INVALID_OPTION' }) as Error
    expect(() => avro('nonsense')).toThrow(invalid)
    expect(() => avro({ type: 'array', items: 'null' })).toThrow(invalid)
    expect(() => avro({ type: 'array', items: { type: 'record', name: 'Nothing', fields: [] } })).toThrow(invalid)
    expect(() => avro({ type: 'array', items: { type: 'fixed', name: 'Empty', size: 0 } })).toThrow(invalid)
  })

  test('an event of an older schema version is read with its schema and goes through its upcaster', async () => {
    const older: AvroSchema = {
      type: 'record',
      name: 'Video',
      fields: [
        { name: 'minutes', type: 'int' },
        { name: 'name', type: 'string' },
      ],
    }
    const videos = stream('video', {
      topic: 'video.events',
      events: {
        VideoPublished: state(avro<Video>(schema, { versions: { 1: older } }), {
          schemaVersion: 2,
          upcast: { 1: (old: { name: string; minutes: number }) => ({ ...video, title: old.name, seconds: old.minutes * 60 }) },
        }),
      },
    })
    const bytes = await avro<{ minutes: number; name: string }>(older).encode({ minutes: 2, name: 'Old' })
    expect(await readData(videos.VideoPublished, bytes, 1)).toEqual({ ...video, title: 'Old', seconds: 120 })
    await expect(readData(videos.VideoPublished, bytes, 3)).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
  })
})

describe('the compatibility check', () => {
  const fields = (...names: readonly (readonly [string, string, unknown?])[]): AvroSchema => ({
    type: 'record',
    name: 'Video',
    fields: names.map(([name, type, standard]) => ({ name, type, ...(standard === undefined ? {} : { default: standard }) })),
  })

  test('lets fields go, come with a default, and numbers grow', () => {
    expect(avroProblems(fields(['a', 'int'], ['b', 'string']), fields(['a', 'long'], ['c', 'string', '']))).toEqual([])
  })

  test('refuses a field without a default and a type that cannot be read', () => {
    expect(avroProblems(fields(['a', 'int']), fields(['a', 'int'], ['b', 'string']))).toHaveLength(1)
    expect(avroProblems(fields(['a', 'string']), fields(['a', 'int']))).toHaveLength(1)
  })
})
