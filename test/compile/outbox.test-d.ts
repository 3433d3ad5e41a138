/**
 * `outbox.add` takes a transaction, an event type of a stream, and data of exactly that type.
 */
import type pg from 'pg'
import * as v from 'valibot'
import { z } from 'zod'
import { createOutbox, event, type Added } from '../../src/outbox/outbox.ts'
import { delta, fromPg, state, stream, tombstone, transaction, type StandardSchema } from '../../src/index.ts'

declare const pool: pg.Pool
declare const handMade: StandardSchema<{ readonly x: string }, { readonly x: number }>

const videos = stream('video', {
  topic: 'video.events',
  events: {
    VideoPublished: state(z.object({ title: z.string(), url: z.url() })),
    VideoRated: delta(v.object({ stars: v.number() })),
    VideoMoved: state(handMade),
    VideoRemoved: tombstone(),
  },
})
const outbox = createOutbox()
const db = fromPg(pool)
const data = { title: 'Alien', url: 'https://example.com' }

void transaction(db, async (tx) => {
  const added: Added = await outbox.add(tx, videos.VideoPublished, '1', data)
  await outbox.add(tx, videos.VideoRated, '1', { stars: 5 }, { version: 2n })
  await outbox.add(tx, videos.VideoMoved, '1', { x: '7' })
  await outbox.add(tx, videos.VideoRemoved, '1')
  await outbox.addMany(tx, [event(videos.VideoPublished, '1', data), event(videos.VideoRated, '1', { stars: 5 })])

  // @ts-expect-error -- a property is missing
  await outbox.add(tx, videos.VideoPublished, '1', { title: 'Alien' })
  // @ts-expect-error -- a property has the wrong type
  await outbox.add(tx, videos.VideoRated, '1', { stars: 'five' })
  // @ts-expect-error -- a property that does not exist
  await outbox.add(tx, videos.VideoRated, '1', { stars: 5, colour: 'red' })
  // @ts-expect-error -- the schema's output is not its input
  await outbox.add(tx, videos.VideoMoved, '1', { x: 7 })
  // @ts-expect-error -- the data of another event
  await outbox.add(tx, videos.VideoRated, '1', data)
  // @ts-expect-error -- no data
  await outbox.add(tx, videos.VideoPublished, '1')
  // @ts-expect-error -- a tombstone carries none
  await outbox.add(tx, videos.VideoRemoved, '1', { why: 'old' })
  // @ts-expect-error -- no such event type
  await outbox.add(tx, videos.VideoPublishd, '1', data)
  // @ts-expect-error -- a name is no event type
  await outbox.add(tx, 'VideoPublished', '1', data)
  // @ts-expect-error -- a stream is no event type
  await outbox.add(tx, videos, '1', data)
  // @ts-expect-error -- an event that belongs to no stream yet
  await outbox.add(tx, state(handMade), '1', { x: '7' })
  // @ts-expect-error -- ids are text
  await outbox.add(tx, videos.VideoPublished, 1, data)
  // @ts-expect-error -- a misspelt option
  await outbox.add(tx, videos.VideoPublished, '1', data, { verson: 2n })
  // @ts-expect-error -- data of another event
  await outbox.addMany(tx, [event(videos.VideoPublished, '1', { stars: 5 })])
  return added.token
})

// @ts-expect-error -- a database is no transaction
void outbox.add(db, videos.VideoPublished, '1', data)
// @ts-expect-error -- a pool is no transaction
void outbox.add(pool, videos.VideoPublished, '1', data)
