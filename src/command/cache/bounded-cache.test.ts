import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { defaults } from '../../core/defaults.ts'
import { createSignals } from '../../core/signals.ts'
import { seededRandom } from '../../core/service/random.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { cacheKey, entryTexts, type CacheEntry, type CommandCache, type PendingEntry } from './cache.ts'
import { guardCache } from './bounded-cache.ts'
import { memoryCache } from './memory.ts'

const pending: PendingEntry = { state: 'pending', fingerprint: 'f', token: 't', aliveAtMs: 0 }
const secret = 'q83vASNFZ4mrze8Ay7F/wQhT1mPz0XcE'
const maxLength = 100_000
const open = entryTexts({ secret: undefined, maxLength })

function setup(cache: CommandCache, more: { readonly secret?: string } = {}) {
  const signals = createSignals()
  const failures: unknown[] = []
  const states: string[] = []
  signals.on('command.cache-failed', (event) => void failures.push(event))
  signals.on('command.cache-breaker', ({ state }) => void states.push(state))
  const clock = createFakeClock()
  const limits = { budgetMs: 20, pendingTtlMs: 60_000, completedTtlMs: 3_600_000, maxResponseBytes: 40_000 }
  const options = { ...limits, secret: undefined, isPlain: true, signals, clock, random: seededRandom(1), ...more }
  let unsealed = 0
  signals.on('command.cache-unsealed', () => void (unsealed += 1))
  return { guarded: guardCache(cache, options), failures, states, clock, unsealed: () => unsealed }
}

describe('a cache that fails', () => {
  test('is left out for a while, then tried by one call at a time, and is back after one that worked', async () => {
    let calls = 0
    let isDown = true
    const real = memoryCache()
    const held: (() => void)[] = []
    const cache: CommandCache = {
      ...real,
      claim: async (...args) => {
        calls += 1
        if (isDown) throw new Error('connection refused')
        await new Promise<void>((done) => held.push(done))
        return await real.claim(...args)
      },
    }
    const { guarded, failures, states, clock } = setup(cache)
    expect(await guarded.claim('a', pending)).toBe('unknown')
    expect(await guarded.claim('a', pending)).toBe('unknown')
    expect([calls, failures.length, states]).toEqual([1, 1, ['open']])
    isDown = false
    await clock.advance(10_000)
    const probe = guarded.claim('a', pending)
    expect(await guarded.claim('b', pending)).toBe('unknown')
    expect(calls).toBe(2)
    held.forEach((done) => done())
    expect(await probe).toBe('claimed')
    expect(states.at(-1)).toBe('closed')
  })

  test('by not answering costs its budget and no more', async () => {
    const { guarded, failures } = setup({ ...memoryCache(), claim: () => new Promise(() => {}) })
    expect(await guarded.claim('a', pending)).toBe('unknown')
    expect(failures).toMatchObject([{ operation: 'claim', error: { code: 'TIMEOUT' } }])
  })

  test('after it has set a claim all the same is told of its end, although it is left out by then', async () => {
    for (const end of ['release', 'complete'] as const) {
      const real = memoryCache()
      const { guarded, states } = setup({
        ...real,
        claim: async (...args) => {
          await real.claim(...args)
          throw new Error('the answer came too late')
        },
      })
      expect(await guarded.claim('a', pending)).toBe('unknown')
      expect(states).toEqual(['open'])
      if (end === 'release') await guarded.release('a', pending)
      else await guarded.complete('a', pending, { state: 'completed', fingerprint: 'f', rejected: false })
      const left = open.read('a', (await real.claim('a', '', { ttlMs: 1_000 })) ?? '')
      expect(left?.state).toBe(end === 'release' ? undefined : 'completed')
    }
  })

  test('between a claim and its answer, and is sent the claim again, is claimed', async () => {
    const real = memoryCache()
    const { guarded } = setup({
      ...real,
      claim: async (...args) => {
        await real.claim(...args)
        return await real.claim(...args)
      },
    })
    expect(await guarded.claim('a', pending)).toBe('claimed')
    expect(await guarded.claim('a', { ...pending, token: 'another' })).toEqual(pending)
  })

  test('is not bothered with the end of a claim that was never sent', async () => {
    const calls: string[] = []
    const down = (operation: string) => async (): Promise<never> => {
      calls.push(operation)
      throw new Error('connection refused')
    }
    const { guarded } = setup({ claim: down('claim'), complete: down('complete'), release: down('release') })
    const other = { ...pending }
    await guarded.claim('a', pending)
    await guarded.claim('b', other)
    await guarded.release('b', other)
    await guarded.complete('b', other, { state: 'completed', fingerprint: 'f', rejected: false })
    expect(calls).toEqual(['claim'])
  })

  test('under many calls at once has failed once: it is left out no longer than after one', async () => {
    const { guarded, failures, clock } = setup({ ...memoryCache(), claim: () => Promise.reject(new Error('connection reset')) })
    await Promise.all(Array.from({ length: 20 }, (_, n) => guarded.claim(`${n}`, { ...pending })))
    expect(failures).toHaveLength(20)
    await clock.advance(defaults.command.cacheBackoff.firstMs)
    await guarded.claim('probe', { ...pending })
    expect(failures).toHaveLength(21)
  })
})

const completed: CacheEntry = { state: 'completed', fingerprint: 'f', rejected: false, response: '{"a":1}', token: 'w2.x' }

describe('what is in the cache and is not ours', () => {
  const misshapen = [
    ['', 'null', '7', '[]', '{', '{"state":"odd","fingerprint":"f"}', '{"state":"pending"}'],
    [
      { ...pending, token: 7 },
      { ...pending, aliveAtMs: undefined },
      { ...pending, aliveAtMs: 'now' },
      { ...pending, fingerprint: 7 },
    ],
    ['{not json', { a: 1 }, 7, null].map((response) => ({ ...completed, response })),
    ['x\r\nSet-Cookie: a=b', '', 'ä', 7, null, 'x'.repeat(5_000)].map((token) => ({ ...completed, token })),
    ['null', '{}', '[]', '{"reason":7,"details":{}}', '{"reason":"x","details":[]}', '', undefined].map((response) => ({
      ...completed,
      rejected: true,
      response,
    })),
    [
      { ...completed, rejected: 'no' },
      { ...completed, response: JSON.stringify('x'.repeat(maxLength)) },
    ],
  ].flat()

  test.each(misshapen)('has another shape than ours, sealed or not, and is nothing: %j', (value) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    expect(open.read('k', text)).toBeUndefined()
    const sealed = entryTexts({ secret, maxLength })
    expect(sealed.read('k', text)).toBeUndefined()
    const written = typeof value === 'string' ? '' : sealed.write('k', value as CacheEntry)
    expect(sealed.read('k', written)).toBeUndefined()
  })

  test('is never an error, whatever stands there, and what is read back has our shape', () => {
    const value = fc.oneof(fc.constantFrom('pending', 'completed', '{"reason":"x","details":{}}', ''), fc.json(), fc.anything())
    const names = ['state', 'fingerprint', 'token', 'aliveAtMs', 'rejected', 'response', '__proto__']
    const entry = fc.dictionary(fc.constantFrom(...names), value, { noNullPrototype: true })
    const text = fc.oneof(
      fc.string(),
      fc.json(),
      entry.map((fields) => JSON.stringify(fields, (_, each: unknown) => (typeof each === 'bigint' ? `${each}` : each))),
    )
    fc.assert(
      fc.property(text, (stored) => {
        const read = open.read('k', stored)
        expect(['undefined', 'string']).toContain(typeof read?.fingerprint)
        expect(entryTexts({ secret, maxLength }).read('k', stored)).toBeUndefined()
        if (read?.state === 'completed' && read.response !== undefined) JSON.parse(read.response === '' ? '0' : read.response)
      }),
      { seed: 28, numRuns: 5_000 },
    )
  })

  test('is nothing without the right seal: of another secret, of another key, changed, or of none', () => {
    const sealed = entryTexts({ secret, maxLength })
    const other = entryTexts({ secret: 'AAECAwQFBgcICQoLDA0ODw8ODQwLCgkI', maxLength })
    for (const entry of [pending, completed]) {
      const text = sealed.write('k', entry)
      expect(sealed.read('k', text)).toEqual(entry)
      expect([sealed.read('l', text), other.read('k', text), sealed.read('k', open.write('k', entry))]).toEqual(
        Array(3).fill(undefined),
      )
      for (let at = 0; at < text.length; at += 1)
        expect(sealed.read('k', `${text.slice(0, at)}${text[at] === 'A' ? 'B' : 'A'}${text.slice(at + 1)}`)).toBeUndefined()
      expect(sealed.read('k', text.slice(text.indexOf('.')))).toBeUndefined()
    }
  })

  test.each(['rubbish', open.write('a', completed)])('gives way to the first entry that is ours: %j', async (planted) => {
    for (const end of ['complete', 'renew', 'release'] as const) {
      const cache = memoryCache()
      await cache.claim('a', planted, { ttlMs: 60_000 })
      const { guarded } = setup(cache, { secret })
      const own = { ...pending }
      expect(await guarded.claim('a', own)).toBe('unknown')
      if (end === 'complete') await guarded.complete('a', own, completed)
      else if (end === 'renew') await guarded.renew('a', own, 5)
      else await guarded.release('a', own)
      const found = await guarded.claim('a', { ...pending, token: 'next' })
      expect(found).toEqual({ complete: completed, renew: { ...pending, aliveAtMs: 5 }, release: 'claimed' }[end])
    }
  })

  test('as a pending entry without an end is completed by the run that took it over', async () => {
    const cache = memoryCache()
    await cache.claim('a', `{"token":"t","state":"pending","fingerprint":"f","aliveAtMs":0,"more":1}`, { ttlMs: 60_000 })
    const { guarded } = setup(cache)
    const found = (await guarded.claim('a', { ...pending, token: 'next' })) as CacheEntry
    expect(found).toEqual(pending)
    await guarded.complete('a', found, { state: 'completed', fingerprint: 'f', rejected: false })
    expect(await guarded.claim('a', { ...pending, token: 'next' })).toMatchObject({ state: 'completed' })
  })

  test('could be told for ours where a shared cache has no secret: that is said once', async () => {
    const shared = (): CommandCache => ({ ...memoryCache(), isPrivate: false })
    const [bare, sealed, alone] = [setup(shared()), setup(shared(), { secret }), setup(memoryCache())]
    for (const { guarded } of [bare, sealed, alone]) for (const key of ['a', 'b']) await guarded.claim(key, pending)
    expect([bare, sealed, alone].map(({ guarded, unsealed }) => [guarded.isProved, unsealed()])).toEqual([
      [false, 1],
      [true, 0],
      [true, 0],
    ])
  })
})

describe('the cache in this process', () => {
  test('gives back what is there, and lets only the owner of a pending value touch it', async () => {
    const cache = memoryCache()
    expect(await cache.claim('k', 'mine', { ttlMs: 1_000 })).toBeUndefined()
    expect(await cache.claim('k', 'yours', { ttlMs: 1_000 })).toBe('mine')
    await cache.complete('k', 'yours', { value: 'done', ttlMs: 1_000 })
    await cache.release('k', 'yours')
    expect(await cache.claim('k', 'x', { ttlMs: 1_000 })).toBe('mine')
    await cache.complete('k', 'mine', { value: 'done', ttlMs: 1_000 })
    expect(await cache.claim('k', 'x', { ttlMs: 1_000 })).toBe('done')
    await cache.complete('other', 'mine', { value: 'done too', ttlMs: 1_000 })
    expect(await cache.claim('other', 'x', { ttlMs: 1_000 })).toBe('done too')
  })

  test('forgets by time and, when it is full, the oldest first', async () => {
    const clock = createFakeClock()
    const cache = memoryCache({ maxBytes: 20, clock })
    await cache.claim('a', '1', { ttlMs: 1_000 })
    await clock.advance(999)
    expect(await cache.claim('a', '2', { ttlMs: 1_000 })).toBe('1')
    await clock.advance(1)
    expect(await cache.claim('a', '2', { ttlMs: 1_000 })).toBeUndefined()
    for (const key of ['b', 'c', 'd', 'e', 'f']) await cache.claim(key, '1', { ttlMs: 1_000 })
    expect(await cache.claim('f', '2', { ttlMs: 1_000 })).toBe('1')
    expect(await cache.claim('a', '3', { ttlMs: 1_000 })).toBeUndefined()
  })
})

test('keys of different databases, principals and requests never meet', () => {
  const keys = [
    ['a', 'bc'],
    ['ab', 'c'],
    ['abc', ''],
    ['a:b', 'c'],
    ['a', ':bc'],
  ].flatMap(([principal = '', requestId = '']) => ['', 'a', 'b'].map((scope) => cacheKey(scope, { principal, requestId })))
  expect(new Set(keys).size).toBe(keys.length)
})
