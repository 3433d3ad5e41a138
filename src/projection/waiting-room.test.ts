import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { createFakeClock, type FakeClock } from '../testing/kit/fake-clock.ts'
import type { AggregateName } from './reads.sql.ts'
import { WaitingRoom } from './waiting-room.ts'

interface Fixture {
  readonly clock: FakeClock
  readonly room: WaitingRoom
  readonly looks: readonly (readonly string[])[]
  readonly positions: Map<string, bigint>
  fail(error: Error | undefined): void
  /** The next look is not answered before the returned function is called. */
  hold(): () => void
}

function fixture(options: { readonly maxWaiters?: number; readonly pollMs?: number } = {}): Fixture {
  const clock = createFakeClock()
  const positions = new Map<string, bigint>()
  const looks: string[][] = []
  const held: Promise<void>[] = []
  let failure: Error | undefined
  const look = async (aggregates: readonly AggregateName[]): Promise<readonly (bigint | undefined)[]> => {
    looks.push(aggregates.map(({ aggregateId }) => aggregateId))
    await held.shift()
    if (failure !== undefined) throw failure
    return aggregates.map(({ aggregateId }) => positions.get(aggregateId))
  }
  const room = new WaitingRoom({ look, pollMs: 10, maxWaiters: 10_000, clock, ...options })
  const hold = (): (() => void) => {
    const { promise, resolve } = Promise.withResolvers<void>()
    held.push(promise)
    return resolve
  }
  return { clock, room, looks, positions, fail: (error) => void (failure = error), hold }
}

const at = (aggregateId: string, version: bigint): { aggregateType: string; aggregateId: string; version: bigint } => ({
  aggregateType: 'video',
  aggregateId,
  version,
})

/** How it ended: `'reached'`, or the code of its error. */
const end = (waiting: Promise<void>): Promise<string> =>
  waiting.then(
    () => 'reached',
    (error: unknown) => (error as { readonly code: string }).code,
  )

async function queriesFor(waiters: number): Promise<number> {
  const { clock, room, looks } = fixture()
  const ends = Array.from({ length: waiters }, (_, i) => end(room.wait(at(`v${i}`, 1n), { waitMs: 500 })))
  await clock.advance(600)
  expect(new Set(await Promise.all(ends))).toEqual(new Set(['NOT_YET']))
  return looks.length
}

test('the number of queries while waiting does not depend on the number of waiters', async () => {
  const one = await queriesFor(1)
  expect(one).toBeGreaterThan(40)
  expect(one).toBeLessThanOrEqual(51)
  expect(await queriesFor(10_000)).toBe(one)
})

test('nobody is asked when nobody waits, neither before nor after', async () => {
  const { clock, room, looks, positions } = fixture()
  room.committed([at('a', 1n)])
  await clock.advance(1_000)
  expect(looks).toEqual([])
  positions.set('a', 3n)
  await room.wait(at('a', 3n), { waitMs: 100 })
  await clock.advance(1_000)
  expect(looks).toEqual([['a']])
  expect([room.count, clock.sleepers()]).toEqual([0, 0])
})

test('a waiter is served by the look after its version arrived, and the others wait on', async () => {
  const { clock, room, positions } = fixture()
  const ends: string[] = []
  void end(room.wait(at('a', 2n), { waitMs: 500 })).then((how) => ends.push(`a2 ${how}`))
  void end(room.wait(at('a', 10n), { waitMs: 100 })).then((how) => ends.push(`a10 ${how}`))
  await clock.advance(50)
  positions.set('a', 9n)
  await clock.advance(10)
  expect(ends).toEqual(['a2 reached'])
  await clock.advance(500)
  expect(ends).toEqual(['a2 reached', 'a10 NOT_YET'])
})

test('a commit of this process ends the pause at once, if it moved something that is awaited', async () => {
  const { clock, room, looks, positions } = fixture({ pollMs: 400 })
  const waiting = end(room.wait(at('a', 1n), { waitMs: 500 }))
  await turn()
  expect(looks).toHaveLength(1)
  room.committed([at('b', 1n)])
  await turn()
  expect(looks).toHaveLength(1)
  positions.set('a', 1n)
  room.committed([at('b', 1n), at('a', 1n)])
  expect(await waiting).toBe('reached')
  expect([looks.length, clock.monotonicMs()]).toEqual([2, 0])
})

test('places are bounded: one too many is refused at once, and a free place is given to the next', async () => {
  const { clock, room } = fixture({ maxWaiters: 2 })
  const first = [end(room.wait(at('a', 1n), { waitMs: 100 })), end(room.wait(at('a', 1n), { waitMs: 100 }))]
  expect(await end(room.wait(at('b', 1n), { waitMs: 100 }))).toBe('OVERLOADED')
  await clock.advance(100)
  expect(await Promise.all(first)).toEqual(['NOT_YET', 'NOT_YET'])
  const next = end(room.wait(at('b', 1n), { waitMs: 100 }))
  expect(room.count).toBe(1)
  await clock.advance(100)
  expect(await next).toBe('NOT_YET')
})

test('a version that no writer can have reached is refused at the first look', async () => {
  const { room, positions } = fixture()
  positions.set('a', 7n)
  expect(await end(room.wait(at('a', 9_223_372_036_854_775_807n), { waitMs: 100 }))).toBe('INVALID_INPUT')
  expect(room.count).toBe(0)
})

test('a wait ends by its deadline when the database fails, says why, and recovers with it', async () => {
  const { clock, room, positions, fail } = fixture()
  fail(new Error('connection refused'))
  const lost = room.wait(at('a', 1n), { waitMs: 100 }).catch((error: unknown) => error)
  await clock.advance(100)
  expect(await lost).toMatchObject({
    code: 'NOT_YET',
    details: { wanted: '1', seen: '0' },
    cause: { message: 'connection refused' },
  })
  const found = end(room.wait(at('a', 1n), { waitMs: 10_000 }))
  await clock.advance(100)
  fail(undefined)
  positions.set('a', 1n)
  await clock.advance(2_000)
  expect(await found).toBe('reached')
})

test('a look that is never answered is given up: whoever waits later is served by another one', async () => {
  const { clock, room, positions, hold } = fixture()
  hold()
  const lost = end(room.wait(at('a', 1n), { waitMs: 100 }))
  const patient = end(room.wait(at('b', 1n), { waitMs: 60_000 }))
  await clock.advance(100)
  expect(await lost).toBe('NOT_YET')
  positions.set('b', 1n)
  positions.set('c', 1n)
  await clock.advance(10_000)
  const found = end(room.wait(at('c', 1n), { waitMs: 100 }))
  await clock.advance(100)
  expect(await found).toBe('reached')
  expect([room.count, clock.sleepers()]).toEqual([0, 0])
  expect(await patient).toBe('reached')
})

test('a look that is not answered in time is the reason of whoever waits in vain, and its late answer still counts', async () => {
  const { clock, room, positions, looks, hold } = fixture()
  const answer = hold()
  hold()
  const patient = end(room.wait(at('a', 1n), { waitMs: 60_000 }))
  await clock.advance(5_100)
  expect(looks).toHaveLength(2)
  const lost = room.wait(at('b', 1n), { waitMs: 100 }).catch((error: unknown) => error)
  await clock.advance(100)
  expect(await lost).toMatchObject({ code: 'NOT_YET', cause: { code: 'TIMEOUT' } })
  positions.set('a', 1n)
  answer()
  expect(await patient).toBe('reached')
  expect(looks).toHaveLength(2)
})

test('a reader that goes away gives its place back', async () => {
  const { room } = fixture()
  const gone = new AbortController()
  const waiting = end(room.wait(at('a', 1n), { waitMs: 500, signal: gone.signal }))
  gone.abort()
  expect(await waiting).toBe('ABORTED')
  expect(await end(room.wait(at('a', 1n), { waitMs: 500, signal: gone.signal }))).toBe('ABORTED')
  expect(room.count).toBe(0)
})
