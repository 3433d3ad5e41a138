/** Reads end in time, whatever becomes of the connection that they went out on. */
import { expect, test } from 'vitest'
import { videos } from '../../test/setup/consumer-fixture.ts'
import { muteOnce } from '../../test/setup/mute-once.ts'
import { tokenOf, videoReads } from '../../test/setup/video-reads.ts'
import type { Interruptible, Queryable } from '../postgres/query/database.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { ReadinessWatch } from './readiness.ts'

const atLeast = tokenOf(2n)
const isRow = (text: string): boolean => text.includes('waybill_found')

/** A projection that has version 2. */
const there: Queryable = {
  query: async (text) => {
    const row = { waybill_position: '2', waybill_version: '2', waybill_found: true, title: 'x 2' }
    return { rows: [isRow(text) ? row : { place: 1, version: '2' }], rowCount: 1 }
  },
}

const failureOf = (work: Promise<unknown>): Promise<unknown> => work.then(String, (error: unknown) => error)
const isSilent = { code: 'UNAVAILABLE' }
const refused = Object.assign(new Error('connect ECONNREFUSED 10.0.0.1:5432'), { code: 'ECONNREFUSED' })

test('a read whose row is never answered asks the owner', async () => {
  const mute = muteOnce(there, isRow)
  const { clock, reads } = videoReads(mute.db)
  const why: unknown[] = []
  const otherwise = (reason: unknown): string => {
    why.push(reason)
    return 'the owner says'
  }
  const read = reads.read(videos, 'x', { atLeast, waitMs: 300, otherwise })
  await mute.asked
  await clock.advance(5_000)
  expect(await read).toBe('the owner says')
  expect(why).toMatchObject([{ code: 'NOT_YET', error: { code: 'NOT_YET', cause: isSilent } }])
})

test('without an owner to ask it is NOT_YET, with the cause', async () => {
  const mute = muteOnce(there, isRow)
  const { clock, reads } = videoReads(mute.db)
  const read = failureOf(reads.read(videos, 'x', { atLeast }))
  await mute.asked
  await clock.advance(5_000)
  expect(await read).toMatchObject({ code: 'NOT_YET', details: { wanted: '2', seen: '0' }, cause: isSilent })
})

test('a reader who has more time is served by another connection', async () => {
  const mute = muteOnce(there, isRow)
  const { clock, reads } = videoReads(mute.db)
  const read = reads.read(videos, 'x', { atLeast, waitMs: 60_000 })
  await mute.asked
  await clock.advance(5_000)
  expect(await read).toEqual({ title: 'x 2' })
})

test('a read without a token that is never answered fails, and the next one goes out on another connection', async () => {
  const mute = muteOnce(there, isRow)
  const { clock, reads } = videoReads(mute.db)
  const read = failureOf(reads.read(videos, 'x'))
  await mute.asked
  await clock.advance(5_000)
  expect(await read).toMatchObject(isSilent)
  expect(await reads.read(videos, 'x')).toEqual({ title: 'x 2' })
})

test('whoever only looks how far the projection is has an answer in time as well', async () => {
  const mute = muteOnce(there, () => true)
  const { clock, reads } = videoReads(mute.db)
  const look = failureOf(reads.waitFor(atLeast, { waitMs: 0 }))
  await mute.asked
  await clock.advance(5_000)
  expect(await look).toMatchObject({ code: 'NOT_YET', cause: isSilent })
  await reads.waitFor(atLeast, { waitMs: 0 })
})

/** A database that never answers, and for each statement whether it was given up. */
function silent(): { readonly db: Interruptible; readonly asked: readonly (AbortSignal | undefined)[] } {
  const asked: (AbortSignal | undefined)[] = []
  const query: Interruptible['query'] = (_text, _values, options) => {
    asked.push(options?.givenUp)
    return new Promise(() => undefined)
  }
  return { db: { query }, asked }
}

test('looks on behalf of those who wait keep no connection for long', async () => {
  const { db, asked } = silent()
  const { clock, reads } = videoReads(db)
  const waiting = failureOf(reads.waitFor(atLeast, { waitMs: 120_000 }))
  for (let seconds = 0; seconds < 120; seconds += 1) await clock.advance(1_000)
  expect(await waiting).toMatchObject({ code: 'NOT_YET' })
  expect(asked.length).toBeGreaterThan(10)
  expect(asked.filter((givenUp) => givenUp?.aborted !== true).length).toBeLessThan(10)
  await clock.advance(60_000)
  expect(asked.every((givenUp) => givenUp?.aborted)).toBe(true)
})

test('a question about readiness that is not answered fails, and keeps no connection', async () => {
  const { db, asked } = silent()
  const clock = createFakeClock()
  const watch = new ReadinessWatch({ db, schema: 'waybill', consumer: 'catalog', clock, readyLagMs: 1, backoff: { maxMs: 1 } })
  const answer = failureOf(watch.readiness())
  await clock.advance(5_000)
  expect(await answer).toMatchObject(isSilent)
  expect(asked.map((givenUp) => givenUp?.aborted)).toEqual([true])
})

test('a statement that is given up is given up with its connection', async () => {
  const asked = Promise.withResolvers<AbortSignal | undefined>()
  const { clock, reads } = videoReads({
    query: async (_text, _values, options) => {
      asked.resolve(options?.givenUp)
      return await new Promise(() => undefined)
    },
  })
  const read = failureOf(reads.read(videos, 'x'))
  const givenUp = await asked.promise
  expect(givenUp?.aborted).toBe(false)
  await clock.advance(5_000)
  await read
  expect(givenUp?.aborted).toBe(true)
})

test('a database that refuses is like one that does not answer: whoever has a token waits for it, then asks the owner', async () => {
  let isDown = true
  const { clock, reads } = videoReads({
    query: async (text) => {
      if (isDown) throw refused
      return await there.query(text)
    },
  })
  const cause = { message: refused.message }
  const read = reads.read(videos, 'x', { atLeast, otherwise: ({ error }) => error })
  await clock.advance(500)
  expect(await read).toMatchObject({ code: 'NOT_YET', cause })
  expect(await failureOf(reads.waitFor(atLeast, { waitMs: 0 }))).toMatchObject({ code: 'NOT_YET', cause })
  expect(await failureOf(reads.read(videos, 'x'))).toBe(refused)

  const patient = reads.read(videos, 'x', { atLeast, waitMs: 60_000 })
  await clock.advance(100)
  isDown = false
  await clock.advance(1_000)
  expect(await patient).toEqual({ title: 'x 2' })
})

test('a statement that is wrong is no outage, and nobody waits for it', async () => {
  const missing = Object.assign(new Error('relation "catalog.video_view" does not exist'), { code: '42P01' })
  const { reads } = videoReads({ query: () => Promise.reject(missing) })
  expect(await failureOf(reads.read(videos, 'x', { atLeast, otherwise: () => 'the owner says' }))).toBe(missing)
  expect(await failureOf(reads.waitFor(atLeast, { waitMs: 0 }))).toBe(missing)
})

test('made-up tokens ask the owner no more than so often at once; beyond that they are told OVERLOADED', async () => {
  const nothing: Interruptible = {
    query: async (text) => ({
      rows: isRow(text) ? [{ waybill_position: null, waybill_version: null, waybill_found: false }] : [],
      rowCount: 1,
    }),
  }
  const { reads } = videoReads(nothing)
  const owner = Promise.withResolvers<string>()
  let calls = 0
  const ask = (n: number): Promise<unknown> => {
    const otherwise = (): Promise<string> => ((calls += 1), owner.promise)
    return reads.read(videos, `v${n}`, { atLeast: tokenOf(5n, `v${n}`), waitMs: 0, otherwise }).catch((error: unknown) => error)
  }
  const refused: unknown[] = []
  const reading = Array.from({ length: 1_000 }, async (_, n) => {
    const end = await ask(n)
    if (typeof end !== 'string') refused.push(end)
    return end
  })
  await eventually(() => refused.length === 998)
  expect(calls).toBe(2)
  const cause = { code: expect.stringMatching(/^(?:NOT_YET|OVERLOADED)$/) as unknown }
  for (const each of refused) expect(each).toMatchObject({ code: 'OVERLOADED', retryable: true, cause })
  owner.resolve('the owner says')
  const ends = await Promise.all(reading)
  expect(ends.filter((end) => end === 'the owner says')).toHaveLength(2)
  expect(await ask(1)).toBe('the owner says')
})
