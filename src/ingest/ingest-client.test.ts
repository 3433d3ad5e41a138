import { expect, test } from 'vitest'
import { seededRandom } from '../core/service/random.ts'
import { createFakeClock, type FakeClock } from '../testing/kit/fake-clock.ts'
import { createIngestClient, type IngestClientOptions } from './ingest-client.ts'

interface Seen {
  readonly method: string
  readonly url: string
  readonly body: unknown
  readonly atMs: number
}

type Answer = { readonly status: number; readonly body?: unknown; readonly headers?: Record<string, string> } | 'reset' | 'hang'

/** A service that answers with what it was told, in turn, and the last for ever. */
function service(clock: FakeClock, answers: readonly Answer[]): { readonly seen: Seen[]; readonly fetch: typeof fetch } {
  const seen: Seen[] = []
  return {
    seen,
    fetch: async (url, init) => {
      const { method = 'GET', body, signal } = init ?? {}
      const answer = answers[Math.min(seen.length, answers.length - 1)] as Answer
      seen.push({
        method,
        url: url as string,
        body: typeof body === 'string' ? JSON.parse(body) : undefined,
        atMs: clock.monotonicMs(),
      })
      if (answer === 'reset') throw new TypeError('fetch failed')
      if (answer === 'hang')
        return await new Promise((_, fail) => signal?.addEventListener('abort', () => fail(new Error('gave up')), { once: true }))
      return new Response(answer.body === undefined ? null : JSON.stringify(answer.body), {
        status: answer.status,
        ...(answer.headers === undefined ? {} : { headers: answer.headers }),
      })
    },
  }
}

function open(answers: readonly Answer[], options: Partial<IngestClientOptions> = {}) {
  const clock = createFakeClock()
  const { seen, fetch } = service(clock, answers)
  const client = createIngestClient({ url: 'http://gateway/readings/', fetch, clock, random: seededRandom(1), ...options })
  const run = async <T>(work: Promise<T>, ms = 3_600_000): Promise<T> => {
    work.catch(() => {})
    await clock.advance(ms)
    return await work
  }
  return { client, seen, run, clock }
}

const accepted = { status: 202, body: { eventId: 'id-1' } }
const busy = (seconds: string): Answer => ({ status: 429, body: { detail: 'slow' }, headers: { 'retry-after': seconds } })

test('sends the same fact again until it is accepted: after resets, outages, hangs and answers of others', async () => {
  const { client, seen, run } = open([
    'reset',
    { status: 503, body: { detail: 'down' } },
    'hang',
    { status: 502 },
    { status: 500 },
    { status: 202, body: { hello: 'from a gateway that answers for itself' } },
    accepted,
  ])
  expect(await run(client.send({ meter: 'a' }))).toEqual({ status: 'accepted', eventId: 'id-1' })
  expect(seen.length).toBe(7)
  expect(new Set(seen.map(({ method, url, body }) => JSON.stringify([method, url, body])))).toEqual(
    new Set([JSON.stringify(['POST', 'http://gateway/readings', { meter: 'a' }])]),
  )
})

test('waits at least as long as it was asked to, and not the same time as others', async () => {
  const { client, seen, run } = open([busy('3'), busy('5'), accepted])
  await run(client.send({}))
  const waits = seen.slice(1).map(({ atMs }, i) => atMs - (seen[i]?.atMs ?? 0))
  expect(waits[0]).toBeGreaterThan(3_000)
  expect(waits[0]).toBeLessThanOrEqual(3_100)
  expect(waits[1]).toBeGreaterThan(5_000)
  expect(waits[1]).toBeLessThanOrEqual(5_200)
})

test('understands a date to retry after, ignores nonsense, and never waits for more than a minute at a word', async () => {
  const date = new Date(Date.UTC(2025, 0, 1) + 4_000).toUTCString()
  const { client, seen, run } = open([busy(date), busy('soon'), busy('86400'), accepted])
  await run(client.send({}))
  const [, second = 0, third = 0, fourth = 0] = seen.map(({ atMs }) => atMs)
  expect(second).toBeGreaterThanOrEqual(4_000)
  expect(third - second).toBeLessThanOrEqual(200)
  expect(fourth - third).toBeGreaterThanOrEqual(60_000)
  expect(fourth - third).toBeLessThanOrEqual(60_400)
})

test.each([
  [400, 'INVALID_INPUT'],
  [401, 'INVALID_INPUT'],
  [413, 'TOO_LARGE'],
  [422, 'REJECTED'],
] as const)('does not repeat what is answered with %i', async (status, code) => {
  const { client, seen, run } = open([{ status, body: { detail: 'because' } }])
  await expect(run(client.send({}))).rejects.toMatchObject({ code, message: 'because', retryable: false })
  expect(seen.length).toBe(1)
})

test('gives up after the attempts it may make', async () => {
  const { client, seen, run } = open([{ status: 503 }], { maxAttempts: 4 })
  await expect(run(client.send({}))).rejects.toMatchObject({ code: 'UNAVAILABLE', retryable: true })
  expect(seen.length).toBe(4)
})

test('a signal ends the wait, and the request under way', async () => {
  for (const answer of [busy('30'), 'hang'] as const) {
    const { client, seen, run, clock } = open([answer])
    const stop = new AbortController()
    const sending = client.send({}, { signal: stop.signal })
    sending.catch(() => {})
    await clock.advance(10)
    stop.abort()
    await expect(run(sending, 1)).rejects.toMatchObject({ code: 'ABORTED' })
    expect(seen.length).toBe(1)
  }
})

test('headers that do not come in time fail the attempt, and the next one asks for them again', async () => {
  let asked = 0
  const headers = (): Promise<Record<string, string>> => ((asked += 1) === 1 ? new Promise(() => {}) : Promise.resolve({}))
  const { client, seen, run } = open([accepted], { headers })
  expect(await run(client.send({}))).toMatchObject({ status: 'accepted' })
  expect([asked, seen.length]).toEqual([2, 1])
})

test('a signal ends the wait for headers', async () => {
  const { client, seen, run, clock } = open([accepted], { headers: () => new Promise(() => {}) })
  const stop = new AbortController()
  const sending = client.send({}, { signal: stop.signal })
  sending.catch(() => {})
  await clock.advance(10)
  stop.abort()
  await expect(run(sending, 1)).rejects.toMatchObject({ code: 'ABORTED' })
  expect(seen).toEqual([])
})

test('of many it repeats only those that may be accepted yet, and tells each its own end', async () => {
  const result = (n: number) => ({ status: 202, eventId: `id-${n}` })
  const { client, seen, run } = open(
    [
      {
        status: 207,
        body: { results: [result(0), { status: 429 }, { status: 400, detail: 'bad' }] },
        headers: { 'retry-after': '1' },
      },
      { status: 202, body: { results: [result(1)] } },
      'reset',
      { status: 202, body: { results: [result(3)] } },
    ],
    { batchSize: 3 },
  )
  expect(await run(client.sendMany([0, 1, 2, 3]))).toMatchObject([
    { status: 'accepted', eventId: 'id-0' },
    { status: 'accepted', eventId: 'id-1' },
    { status: 'refused', code: 'INVALID_INPUT', message: 'bad' },
    { status: 'accepted', eventId: 'id-3' },
  ])
  expect(seen.map(({ url, body }) => [url, body])).toEqual([
    ['http://gateway/readings/batch', [0, 1, 2]],
    ['http://gateway/readings/batch', [1]],
    ['http://gateway/readings/batch', [3]],
    ['http://gateway/readings/batch', [3]],
  ])
})

test('a batch answer that does not speak of every fact confirms none', async () => {
  const { client, run } = open([{ status: 202, body: { results: [{ status: 202, eventId: 'x' }] } }], { maxAttempts: 2 })
  expect(await run(client.sendMany([1, 2]))).toMatchObject([{ code: 'UNAVAILABLE' }, { code: 'UNAVAILABLE' }])
})

test.each([[['a', '..', 'b']], ['.'], [['a', '']]])('a key that no address can hold is not asked about: %j', async (key) => {
  const { client, seen, run } = open([{ status: 200, body: { eventId: 'x', processed: true } }])
  await expect(run(client.processed(key))).rejects.toMatchObject({ code: 'INVALID_INPUT' })
  expect(seen).toEqual([])
})

test('asks whether a key was processed, part by part', async () => {
  const { client, seen, run } = open(['reset', { status: 200, body: { eventId: 'x', processed: true } }])
  expect(await run(client.processed(['a/b', 7]))).toBe(true)
  expect(seen[1]).toMatchObject({ method: 'GET', url: 'http://gateway/readings/a%2Fb/7' })
  const other = open([{ status: 200, body: { eventId: 'x', processed: false } }])
  expect(await other.run(other.client.processed('a'))).toBe(false)
  const unable = open([{ status: 404, body: { detail: 'cannot tell' } }])
  await expect(unable.run(unable.client.processed('a'))).rejects.toThrow('cannot tell')
})

test('a list that is too large as a whole is halved, and only a fact that is too large by itself is given up', async () => {
  const clock = createFakeClock()
  const bodies: number[][] = []
  const fetch = async (_url: unknown, init?: { readonly body?: unknown }): Promise<Response> => {
    const list = JSON.parse(init?.body as string) as number[]
    bodies.push(list)
    if (list.length > 2 || list.includes(4)) return Response.json({ detail: 'too large' }, { status: 413 })
    return Response.json({ results: list.map((n) => ({ status: 202, eventId: `id-${n}` })) }, { status: 202 })
  }
  const client = createIngestClient({ url: 'http://gateway/readings', fetch, clock })
  const outcomes = await client.sendMany([0, 1, 2, 3, 4])
  expect(outcomes).toMatchObject([
    ...[0, 1, 2, 3].map((n) => ({ status: 'accepted', eventId: `id-${n}` })),
    { status: 'refused', code: 'TOO_LARGE', message: 'too large' },
  ])
  expect(bodies).toEqual([[0, 1, 2, 3, 4], [0, 1, 2], [0, 1], [2], [3, 4], [3], [4]])
})

test('a list whose facts are each called too large is not sent again', async () => {
  const result = { status: 413, detail: 'large' }
  const { client, seen, run } = open([{ status: 413, body: { results: [result, result] } }])
  expect(await run(client.sendMany([0, 1]))).toMatchObject([{ code: 'TOO_LARGE' }, { code: 'TOO_LARGE' }])
  expect(seen.length).toBe(1)
})

test('a back-off that could not be computed with is refused by the name of its key', () => {
  expect(() => open([], { backoff: { maxMs: NaN } })).toThrow('ingestClient.backoff.maxMs: must be a whole number')
})

test('a fact that JSON cannot say is INVALID_INPUT alone, at once; its neighbours go in one request', async () => {
  const results = [
    { status: 202, eventId: 'id-1' },
    { status: 202, eventId: 'id-2' },
  ]
  const { client, seen, run } = open([{ status: 202, body: { results } }])
  expect(await run(client.sendMany([{ a: 1 }, { a: 2 }, { a: 10n }]))).toMatchObject([
    { status: 'accepted', eventId: 'id-1' },
    { status: 'accepted', eventId: 'id-2' },
    { status: 'refused', code: 'INVALID_INPUT', retryable: false },
  ])
  expect(seen.map(({ body }) => body)).toEqual([[{ a: 1 }, { a: 2 }]])
  const cycle: Record<string, unknown> = {}
  cycle['self'] = cycle
  expect(await run(client.sendMany([undefined, { a: 1 }, cycle, { a: 2 }]))).toMatchObject([
    { code: 'INVALID_INPUT', message: 'JSON cannot say this fact: it is undefined.' },
    { eventId: 'id-1' },
    { code: 'INVALID_INPUT' },
    { eventId: 'id-2' },
  ])
  expect(seen.length).toBe(2)
})

test('one fact that JSON cannot say is refused before anything is sent', async () => {
  const { client, seen, run } = open([accepted])
  for (const fact of [{ a: 10n }, undefined, () => 1])
    await expect(run(client.send(fact))).rejects.toMatchObject({ code: 'INVALID_INPUT', retryable: false })
  expect(seen).toEqual([])
})
