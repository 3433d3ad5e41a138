import { expect, test } from 'vitest'
import { z } from 'zod'
import { avro } from '../../codec/avro.ts'
import { state } from '../../core/event/event.ts'
import { stream } from '../../core/event/stream.ts'
import { recordedProblems, recordEvent, type RecordedEvent } from './recorded-events.ts'

const first = stream('video', { topic: 'video.events', events: { VideoPublished: state(z.object({ name: z.string() })) } })
const recorded: RecordedEvent[] = [await recordEvent(first.VideoPublished, { name: 'Hi' })]
const titled = z.object({ title: z.string() })

test('an event is recorded as the outbox would store it', () => {
  expect(recorded).toEqual([
    {
      aggregateType: 'video',
      eventType: 'VideoPublished',
      schemaVersion: 1,
      payload: Buffer.from('{"name":"Hi"}').toString('base64'),
    },
  ])
})

test('a change with an upcaster reads it; without one the check fails', async () => {
  const upcast = { 1: ({ name }: { name: string }) => ({ title: name }) }
  const second = stream('video', {
    topic: 'video.events',
    events: { VideoPublished: state(titled, { schemaVersion: 2, upcast }) },
  })
  expect(await recordedProblems([first], recorded)).toEqual([])
  expect(await recordedProblems([second], recorded)).toEqual([])
  const forgotten = stream('video', { topic: 'video.events', events: { VideoPublished: state(titled, { schemaVersion: 2 }) } })
  expect(await recordedProblems([forgotten], recorded)).toEqual([expect.stringContaining('schema version 1 cannot be read')])
  const silent = stream('video', { topic: 'video.events', events: { VideoPublished: state(titled) } })
  expect(await recordedProblems([silent], recorded)).toEqual([expect.stringContaining('title')])
})

test('an event type that was dropped or encoded otherwise is a problem too', async () => {
  const renamed = stream('video', { topic: 'video.events', events: { VideoShown: state(titled) } })
  expect(await recordedProblems([renamed], recorded)).toEqual([expect.stringContaining('not declared any more')])
  const schema = { type: 'record', name: 'Video', fields: [{ name: 'name', type: 'int' }] } as const
  const other = stream('video', {
    topic: 'video.events',
    events: { VideoPublished: state(avro<{ name: number }>(schema as never)) },
  })
  expect(await recordedProblems([other], recorded)).toHaveLength(1)
})
