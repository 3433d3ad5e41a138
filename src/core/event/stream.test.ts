import { expect, test } from 'vitest'
import { z } from 'zod'
import { encodeJson, type Codec } from '../encoding/codec.ts'
import { delta, state, tombstone } from './event.ts'
import { readData, stream, type EventType } from './stream.ts'

const same = (data: unknown): unknown => data
const schema = z.object({ title: z.string() })
const videos = stream('video', {
  topic: 'video.events',
  events: { VideoPublished: state(schema), VideoRenamed: delta(schema), VideoRemoved: tombstone() },
})

test('a stream has its event types as properties, with kind, name and stream', () => {
  expect(videos).toMatchObject({ aggregateType: 'video', topic: 'video.events', maxBytes: 1_000_000, ordering: 'aggregate' })
  expect(Object.keys(videos.events)).toEqual(['VideoPublished', 'VideoRenamed', 'VideoRemoved'])
  expect(videos.VideoPublished).toBe(videos.events.VideoPublished)
  expect(videos.VideoPublished).toMatchObject({
    kind: 'state',
    name: 'VideoPublished',
    schemaVersion: 1,
    stream: { topic: 'video.events' },
  })
  expect(videos.VideoRenamed.kind).toBe('delta')
  expect(videos.VideoRemoved.kind).toBe('tombstone')
})

test('nothing of a declared stream can be changed', () => {
  const type = stream('a', {
    topic: 'a.events',
    events: { Upped: state(schema, { schemaVersion: 2, upcast: { 1: (old) => old } }) },
  })
  for (const part of [type, type.events, type.Upped, type.Upped.stream, type.Upped.upcast, state(schema)]) {
    expect(Object.isFrozen(part)).toBe(true)
  }
})

test('a definition can serve two streams', () => {
  const shared = state(schema)
  const [a, b] = ['a', 'b'].map((name) => stream(name, { topic: `${name}.events`, events: { Changed: shared } }))
  expect(a!.Changed.stream.topic).toBe('a.events')
  expect(b!.Changed.stream.topic).toBe('b.events')
})

test('a name that came with a message finds nothing that every object inherits', () => {
  const events: Readonly<Record<string, unknown>> = videos.events
  const found = ['constructor', 'toString', '__proto__', 'hasOwnProperty'].filter((name) => events[name] !== undefined)
  expect(found).toEqual([])
})

test.each([
  'aggregateType',
  'topic',
  'maxBytes',
  'ordering',
  'events',
  'constructor',
  '__proto__',
  'videoPublished',
  'Video-Published',
  'Vidéo',
  '',
  '1st',
  'A'.repeat(129),
])('an event type cannot be named %j, so it can never hide a property of its stream', (name) => {
  const events = Object.fromEntries([[name, state(schema)]])
  expect(() => stream('video', { topic: 'video.events', events })).toThrow(
    /^event type ".*": use letters and digits, starting with a capital\.$/,
  )
})

test.each(['', 'Video', '1video', 'vid eo', 'video"', "video';drop", 'é', 'a'.repeat(129), null, 7n])(
  'a stream cannot be named %o',
  (name) => {
    expect(() => stream(name as string, { topic: 'video.events', events: { A: state(schema) } })).toThrow(
      /^stream .+: use lower-case letters/,
    )
  },
)

test.each(['', 'ab', '1abc', 'a b c', 'a/b', 'é'.repeat(5), 'a'.repeat(256), undefined, null])(
  'a topic cannot be named %o',
  (topic) => {
    expect(() => stream('video', { topic: topic as string, events: { A: state(schema) } })).toThrow(
      /^topic .+: use 3 to 255 letters/,
    )
  },
)

test.each([
  [undefined, /^stream video: options must be an object, got undefined\.$/],
  [{ topic: 'abc' }, /it has no events; declare at least one/],
  [{ topic: 'abc', events: {} }, /it has no events; declare at least one/],
  [{ topic: 'abc', events: null }, /it has no events/],
  [{ topic: 'abc', events: { A: schema } }, /A has no kind\. Wrap its schema: state\(schema\)/],
  [{ topic: 'abc', events: { A: undefined } }, /A has no kind/],
  [
    { topic: 'abc', events: { A: state(schema) }, maxByte: 1 },
    /stream video\.maxByte: unknown option\. Did you mean "maxBytes"\?/,
  ],
  [{ topic: 'abc', events: { A: state(schema) }, maxBytes: 0 }, /stream video\.maxBytes: must be a whole number/],
  [
    { topic: 'abc', events: { A: state(schema) }, ordering: 'keys' },
    /stream video\.ordering: must be one of "aggregate", "lane", "version"/,
  ],
  [
    { topic: 'abc', events: { A: state(schema), B: delta(schema) }, ordering: 'version' },
    /ordering 'version' is for state events only, but B is a delta/,
  ],
])('a stream declared with %o is refused', (options, message) => {
  expect(() => stream('video', options as never)).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringMatching(message) }),
  )
})

test('a state stream with tombstones may do without an ordering key', () => {
  const events = { A: state(schema), B: tombstone() }
  expect(stream('video', { topic: 'abc', events, ordering: 'version' }).ordering).toBe('version')
})

test.each([undefined, null, 7, 'schema', {}, { parse: () => 1 }])('%o is neither a schema nor a codec', (given) => {
  expect(() => state(given as never)).toThrow(/An event type needs a Standard Schema \(Zod, Valibot, ArkType …\) or a codec/)
})

test.each([
  [{ schemaVersion: 0 }, /state\.schemaVersion: must be a whole number/],
  [{ schemaVersion: 1.5 }, /state\.schemaVersion: must be a whole number/],
  [{ schema_version: 2 }, /state\.schema_version: unknown option\. Did you mean "schemaVersion"\?/],
  [{ upcast: { 1: same } }, /step from 1, but the schema version is 1\. Raise schemaVersion/],
  [{ schemaVersion: 3, upcast: { 1: same } }, /leads from 1 to 2, and no step goes on from there to 3\. Add it/],
  [{ schemaVersion: 2, upcast: { 1: 'x' } }, /step from 1 must be a function/],
  [{ schemaVersion: 2, upcast: { first: same } }, /step from first, but/],
  [{ schemaVersion: 2, upcast: null }, /must be an object of functions/],
])('event options %o are refused', (options, message) => {
  expect(() => state(schema, options as never)).toThrow(message)
})

const people = stream('person', {
  topic: 'person.events',
  events: {
    PersonChanged: state(z.object({ first: z.string(), last: z.string(), active: z.boolean() }), {
      schemaVersion: 4,
      upcast: {
        2: (data: { name: string }) => ({ first: data.name.split(' ')[0], last: data.name.split(' ')[1] }),
        3: async (data: object) => await Promise.resolve({ ...data, active: true }),
      },
    }),
  },
})

test('data of an older schema version is upcast step by step', async () => {
  const read = async (version: number, data: unknown): Promise<unknown> =>
    await readData(people.PersonChanged, encodeJson(data), version)
  const ada = { first: 'Ada', last: 'Lovelace', active: true }
  expect(await read(2, { name: 'Ada Lovelace' })).toEqual(ada)
  expect(await read(3, { first: 'Ada', last: 'Lovelace' })).toEqual(ada)
  expect(await read(4, { ...ada, active: false })).toEqual({ ...ada, active: false })
})

test('what an upcaster makes is validated', async () => {
  await expect(readData(people.PersonChanged, encodeJson({ name: 'Ada' }), 2)).rejects.toThrow(/does not fit its schema: last/)
})

test.each([5, 1_000_000, 1, 0, -1, 2.5, Number.NaN])(
  'schema version %d, which this process does not know, is refused and not guessed at',
  async (version) => {
    await expect(readData(people.PersonChanged, encodeJson({}), version)).rejects.toThrow(
      expect.objectContaining({
        code: 'UNKNOWN_NAME',
        message: `PersonChanged: schema version ${version} cannot be read; this process knows 4. Add an upcaster, or deploy readers before writers.`,
        details: { eventType: 'PersonChanged', schemaVersion: version },
      }),
    )
  },
)

test('an asynchronous schema validates what is read', async () => {
  const async = z.object({ id: z.string().refine(async (id) => await Promise.resolve(id !== 'bad'), 'is bad') })
  const { Checked } = stream('check', { topic: 'check.events', events: { Checked: state(async) } })
  expect(await readData(Checked, encodeJson({ id: 'good' }), 1)).toEqual({ id: 'good' })
  await expect(readData(Checked, encodeJson({ id: 'bad' }), 1)).rejects.toThrow(/id: is bad/)
})

test('a tombstone carries nothing, and says so when it is given something', async () => {
  const bytes = await videos.VideoRemoved.codec.encode()
  expect(Buffer.from(bytes).toString()).toBe('null')
  expect(await readData(videos.VideoRemoved, bytes, 1)).toBeNull()
  expect(() => videos.VideoRemoved.codec.encode({ reason: 'x' } as never)).toThrow(/this tombstone carries no data; pass nothing/)
})

test('a tombstone with a schema carries its data', async () => {
  const { Gone } = stream('thing', { topic: 'thing.events', events: { Gone: tombstone(z.object({ why: z.string() })) } })
  expect(await readData(Gone, await Gone.codec.encode({ why: 'sold' }), 1)).toEqual({ why: 'sold' })
})

test('a codec is used as it is', async () => {
  const codec: Codec<number> = {
    contentType: 'application/x-byte',
    encode: (data) => Uint8Array.of(data),
    decode: (bytes) => bytes[0],
    validate: (data) => data as number,
  }
  const type: EventType<'delta', number, number> = stream('counter', {
    topic: 'counter.events',
    events: { Counted: delta(codec) },
  }).Counted
  expect(type.codec).toBe(codec)
  expect(await readData(type, await type.codec.encode(7), 1)).toBe(7)
})

test('a schema that is a function, as ArkType has them, is a schema', async () => {
  const callable = Object.assign(() => undefined, { '~standard': schema['~standard'] })
  expect(Buffer.from(await state(callable).codec.encode({ title: 'a' })).toString()).toBe('{"title":"a"}')
})
