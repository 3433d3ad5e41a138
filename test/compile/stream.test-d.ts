/**
 * What `stream()` infers, and what it refuses to compile.
 */
import * as v from 'valibot'
import { z } from 'zod'
import type { Codec, StandardSchema } from '../../src/index.ts'
import {
  delta,
  state,
  stream,
  tombstone,
  type AnyStream,
  type EventData,
  type EventInput,
  type EventType,
} from '../../src/index.ts'
import { readData } from '../../src/core/event/stream.ts'
import { sameType } from './same-type.ts'

interface Point {
  readonly x: number
}

declare const handMade: StandardSchema<{ readonly x: string }, Point>
declare const codec: Codec<Point, Point>
declare const bytes: Uint8Array

const things = stream('thing', {
  topic: 'thing.events',
  events: {
    ByZod: state(z.object({ title: z.string(), views: z.number().default(0), at: z.coerce.date() })),
    ByValibot: delta(v.object({ title: v.string(), views: v.optional(v.number(), 0) })),
    ByHand: state(handMade),
    ByCodec: delta(codec),
    Removed: tombstone(),
    Sold: tombstone(z.object({ price: z.number() })),
  },
})

// Payloads are inferred: what a writer passes, and what a reader sees.
sameType<EventInput<typeof things.ByZod>, { title: string; at: unknown; views?: number | undefined }>()
sameType<EventData<typeof things.ByZod>, { title: string; views: number; at: Date }>()
sameType<EventInput<typeof things.ByValibot>, { title: string; views?: number | undefined }>()
sameType<EventData<typeof things.ByValibot>, { title: string; views: number }>()
sameType<EventInput<typeof things.ByHand>, { readonly x: string }>()
sameType<EventData<typeof things.ByHand>, Point>()
sameType<EventInput<typeof things.ByCodec>, Point>()
sameType<EventData<typeof things.Removed>, null>()
sameType<EventInput<typeof things.Sold>, { price: number }>()
sameType<typeof things.ByZod, typeof things.events.ByZod>()
sameType<Awaited<ReturnType<typeof readData<{ price: number }>>>, { price: number }>()

// The comparison itself can fail.
// @ts-expect-error -- any is not text
sameType<any, string>() // oxlint-disable-line typescript/no-explicit-any -- the case under test
// @ts-expect-error -- an optional property is not a required one
sameType<{ a?: number }, { a: number }>()

// Kinds are told apart.
sameType<typeof things.ByZod.kind, 'state'>()
sameType<typeof things.ByValibot.kind, 'delta'>()
sameType<typeof things.Removed.kind, 'tombstone'>()
declare function onlyStates<Input, Output>(type: EventType<'state', Input, Output>): Output
sameType<ReturnType<typeof onlyStates<string, Point>>, Point>()
onlyStates(things.ByZod)
// @ts-expect-error -- a delta is not a state
onlyStates(things.ByValibot)
// @ts-expect-error -- a tombstone is not a state
onlyStates(things.Removed)

// A wrong payload does not compile.
void things.ByZod.codec.encode({ title: 'a', at: '2025-01-01' })
// @ts-expect-error -- the title is text
void things.ByZod.codec.encode({ title: 7, at: '2025-01-01' })
// @ts-expect-error -- the title is missing
void things.ByZod.codec.encode({ at: '2025-01-01' })
// @ts-expect-error -- there is no such property
void things.ByValibot.codec.encode({ title: 'a', colour: 'red' })
// @ts-expect-error -- input, not output: x is text on the way in
void things.ByHand.codec.encode({ x: 7 })

// A tombstone needs no data, and takes none.
void things.Removed.codec.encode()
void things.Removed.codec.encode(null)
// @ts-expect-error -- it carries nothing
void things.Removed.codec.encode({ why: 'sold' })
// @ts-expect-error -- this one has a schema, so it needs its data
void things.Sold.codec.encode()

// An unknown event type does not compile.
// @ts-expect-error -- there is no such event
void things.ByZood
// @ts-expect-error -- nor here
void things.events.ByZood

// A reader gets the output.
const title: Promise<{ title: string }> = readData(things.ByZod, bytes, 1)
// @ts-expect-error -- the title is text
const wrong: Promise<{ title: number }> = readData(things.ByZod, bytes, 1)
void [title, wrong]

// Any stream and any event type can be passed where one of unknown events is taken.
const any: AnyStream = things
const anyType: EventType = things.ByValibot
void [any, anyType]
// @ts-expect-error -- of a stream of unknown events nobody knows the payload
void any.events['ByZod']?.codec.encode({ title: 'a' })

// Declarations that cannot work do not compile.
// @ts-expect-error -- no topic
stream('thing', { events: { A: state(handMade) } })
// @ts-expect-error -- a schema without a kind
stream('thing', { topic: 'thing.events', events: { A: z.object({}) } })
// @ts-expect-error -- a misspelt ordering
stream('thing', { topic: 'thing.events', events: { A: state(handMade) }, ordering: 'agregate' })
// @ts-expect-error -- a misspelt option
stream('thing', { topic: 'thing.events', events: { A: state(handMade) }, maxByte: 1 })
// @ts-expect-error -- a schema is needed
state()
// @ts-expect-error -- this is no schema
state({ title: 'string' })

// Nothing of a stream can be assigned.
// @ts-expect-error -- read-only
things.topic = 'other'
// @ts-expect-error -- read-only
things.ByZod.name = 'other'
