import { expect, test } from 'vitest'
import { z } from 'zod'
import { delta, state, tombstone } from '../../core/event/event.ts'
import { stream, type AnyStream } from '../../core/event/stream.ts'
import { resolveKafkaOptions } from './kafka-options.ts'

const events = { Stored: state(z.object({})), Removed: tombstone() }
const videos = stream('video', { topic: 'video.events', events })
const books = stream('book', { topic: 'book.events', events })
const compacted = (...streams: readonly AnyStream[]): unknown =>
  resolveKafkaOptions({ brokers: ['nowhere:1'], compacted: streams }).compacted

test.each<[string, readonly AnyStream[], RegExp]>([
  ['its key is a lane', [stream('video', { topic: 'video.events', events, ordering: 'lane' })], /video has ordering 'lane'/],
  ['it has no key', [stream('video', { topic: 'video.events', events, ordering: 'version' })], /video has ordering 'version'/],
  [
    'it has deltas',
    [stream('video', { topic: 'video.events', events: { ...events, Renamed: delta(z.object({})) } })],
    /video has the delta Renamed/,
  ],
  [
    'ids of two streams are keys of one topic',
    [videos, stream('book', { topic: 'video.events', events })],
    /video and book share/,
  ],
])('a stream is not compacted if %s', (_why, streams, message) => {
  expect(() => compacted(...streams)).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringMatching(message) }),
  )
})

test('streams of states with a topic each are compacted, a stream that is declared twice included', () => {
  const again = stream('video', { topic: 'video.events', events: { Stored: events.Stored } })
  expect(compacted(videos, books, again)).toEqual([videos, books, again])
})
