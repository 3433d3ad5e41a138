import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { state } from '../core/event/event.ts'
import { readData, stream } from '../core/event/stream.ts'
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

const tooLarge = expect.objectContaining({ code: 'TOO_LARGE' }) as Error

/** A number as Avro writes it. */
function long(value: number): Buffer {
  const bytes: number[] = []
  let left = value < 0 ? -2 * value - 1 : 2 * value
  for (; left >= 128; left = Math.floor(left / 128)) bytes.push((left % 128) + 128)
  return Buffer.from([...bytes, left])
}

/** A block of so many items of these bytes. */
function block(items: number, item: readonly number[]): Buffer {
  return Buffer.concat([long(items), Buffer.alloc(items * item.length, Buffer.from(item))])
}

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
    expect(() => chain.decode(Buffer.alloc(2_000_000, 2))).toThrow(tooLarge)
  })

  test.each<[string, AvroSchema, Uint8Array]>([
    ['a list of empty lists', { type: 'array', items: { type: 'array', items: 'int' } }, block(300_000, [0])],
    ['a list of empty maps', { type: 'array', items: { type: 'map', values: 'int' } }, block(300_000, [0])],
    ['a map of nothing', { type: 'map', values: 'null' }, block(300_000, [0])],
    [
      'a list in blocks with their sizes',
      { type: 'array', items: 'int' },
      Buffer.concat(Array(300_000).fill(Buffer.from([1, 2, 0]))),
    ],
    [
      'a list of records, with more fields than bytes',
      {
        type: 'array',
        items: {
          type: 'record',
          name: 'R',
          fields: ['a', 'b', 'c'].map((name) => ({ name, type: name === 'a' ? 'int' : 'null' })),
        },
      },
      block(100_000, [0]),
    ],
  ])('refuses %s that stands for more values than the budget has', (_name, type, bytes) => {
    expect(() => avro(type).decode(bytes)).toThrow(tooLarge)
    expect(codeOf(() => avro(type, { maxValues: 1_000_000 }).decode(Buffer.concat([bytes, Buffer.from([0])])))).toBe('read')
  })

  test('refuses a list that announces more items than it has bytes, before it makes room for them', () => {
    const counts = [2 ** 24, 2 ** 31, 2 ** 50, -(2 ** 24)].map((count) => Buffer.concat([long(count), Buffer.from([2, 0])]))
    expect(() => avro({ type: 'array', items: 'int' }, { maxValues: 2 ** 25 }).decode(counts[0]!)).toThrow(
      /ends before what it announces/,
    )
    for (const maxValues of [250_000, 1_000_000_000])
      for (const bytes of counts)
        expect(['TOO_LARGE', 'INVALID_INPUT']).toContain(
          codeOf(() => avro({ type: 'array', items: 'int' }, { maxValues }).decode(bytes)),
        )
  })

  test('refuses the same to its writer, and refuses a budget that is none', () => {
    const lists = avro<number[]>({ type: 'array', items: 'int' }, { maxValues: 10 })
    expect(() => lists.encode(Array(11).fill(1))).toThrow(tooLarge)
    expect(lists.decode(lists.encode(Array(10).fill(1)) as Uint8Array)).toHaveLength(10)
    expect(() => avro('int', { maxDept: 1 } as never)).toThrow(/Did you mean "maxDepth"/)
  })

  test('counts any data that it wrote without a refusal', () => {
    const any: AvroSchema = {
      type: 'record',
      name: 'Any',
      fields: [
        { name: 'flag', type: 'boolean' },
        { name: 'float', type: 'float' },
        { name: 'double', type: 'double' },
        { name: 'big', type: 'long' },
        { name: 'bytes', type: 'bytes' },
        { name: 'fixed', type: { type: 'fixed', name: 'Two', size: 2 } },
        { name: 'enum', type: { type: 'enum', name: 'Suit', symbols: ['A', 'B'] } },
        { name: 'next', type: ['null', 'Any'] },
        { name: 'maps', type: { type: 'array', items: { type: 'map', values: ['null', 'string'] } } },
      ],
    }
    const one = (next: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
      fc.record({
        flag: fc.boolean(),
        float: fc.float({ noNaN: true }),
        double: fc.double({ noNaN: true }),
        big: fc.maxSafeInteger(),
        bytes: fc.uint8Array().map((bytes) => Buffer.from(bytes)),
        fixed: fc.uint8Array({ minLength: 2, maxLength: 2 }).map((bytes) => Buffer.from(bytes)),
        enum: fc.constantFrom('A', 'B'),
        next,
        maps: fc.array(
          fc.dictionary(
            fc.string({ minLength: 1 }).filter((key) => key !== '__proto__'),
            fc.option(fc.string()),
          ),
        ),
      })
    fc.assert(
      fc.property(one(fc.option(one(fc.constant(null)))), (data) => {
        const bytes = avro<unknown>(any).encode(data) as Uint8Array
        expect(codeOf(() => avro(any).decode(bytes))).toBe('read')
      }),
    )
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
