/**
 * The promises of an ingest behind HTTP. An adapter of a framework is done when this suite passes.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { factId } from '../../src/ingest/fact.ts'
import { createIngestClient } from '../../src/ingest/ingest-client.ts'
import { createIngest, type Ingest } from '../../src/ingest/ingest.ts'
import { memory } from '../../src/transport/memory/memory.ts'
import { heldPublisher } from '../ingest/held-publisher.ts'
import { reading, readingKey, readings } from '../ingest/readings.ts'

export interface IngestHarness {
  /** At /readings: for anybody. */
  readonly open: Ingest
  /** At /own/readings: for whoever the header `x-user` names, each with keys of its own. */
  readonly own: Ingest
  /** At /slow: its broker answers when told to. */
  readonly slow: Ingest
}

export type OpenIngestServer = (
  harness: IngestHarness,
) => Promise<{ readonly url: string; readonly close: () => Promise<unknown> }>

const maxBodyBytes = 50_000

export function ingestHttpContract(name: string, open: OpenIngestServer): void {
  const broker = memory()
  const held = heldPublisher()
  const processed = new Set<string>()
  const common = {
    event: readings.ReadingTaken,
    key: readingKey,
    maxBodyBytes,
    maxFacts: 20,
    processed: ({ eventId }: { readonly eventId: string }) => processed.has(eventId),
  }
  let server: Awaited<ReturnType<OpenIngestServer>>

  const post = (path: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${server.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })
  const seen = async (response: Response): Promise<object> => ({
    status: response.status,
    type: response.headers.get('content-type')?.split(';')[0],
    retryAfter: response.headers.get('retry-after'),
    body: await response.json(),
  })
  const get = async (path: string, headers: Record<string, string> = {}): Promise<object> =>
    await seen(await fetch(`${server.url}${path}`, { headers }))
  const id = (n: number, ...scope: string[]): string => factId(readings.ReadingTaken, [...scope, ...readingKey(reading(n))])
  const problem = 'application/problem+json'

  describe(`${name} serves an ingest`, () => {
    beforeAll(async () => {
      server = await open({
        open: createIngest({ ...common, to: broker }),
        own: createIngest({ ...common, to: broker }),
        slow: createIngest({ ...common, to: held, maxInFlight: 3 }),
      })
    })
    afterAll(() => server.close())

    test('accepts a fact with its event id, and a repeat with the same', async () => {
      for (let times = 0; times < 2; times += 1)
        expect(await seen(await post('/readings', reading(1)))).toEqual({
          status: 202,
          type: 'application/json',
          retryAfter: null,
          body: { eventId: id(1) },
        })
    })

    test('answers a batch fact by fact: 202 only if all were accepted, 207 if not, one problem if all were refused alike', async () => {
      const ok = (n: number): object => ({ status: 202, eventId: id(n) })
      expect(await seen(await post('/readings/batch', [reading(2), reading(3)]))).toMatchObject({
        status: 202,
        body: { results: [ok(2), ok(3)] },
      })
      expect(await seen(await post('/readings/batch', [reading(2), { meter: 1 }, reading(4)]))).toMatchObject({
        status: 207,
        type: 'application/json',
        body: { results: [ok(2), { status: 400, code: 'INVALID_INPUT', retryable: false }, ok(4)] },
      })
      expect(await seen(await post('/readings/batch', [{}, 7]))).toMatchObject({
        status: 400,
        type: problem,
        body: { code: 'INVALID_INPUT', results: [{ status: 400 }, { status: 400 }] },
      })
    })

    test('refuses a body that does not fit, is not JSON, is too large, or is no list where one is wanted', async () => {
      expect(await seen(await post('/readings', { meter: 7 }))).toMatchObject({
        status: 400,
        type: problem,
        body: { type: 'urn:waybill:problem:invalid-input', code: 'INVALID_INPUT', retryable: false },
      })
      expect((await post('/readings', '{"meter":')).status).toBe(400)
      expect((await post('/readings', { ...reading(1), note: 'x'.repeat(maxBodyBytes) })).status).toBe(413)
      expect(
        await seen(
          await post(
            '/readings/batch',
            Array.from({ length: 21 }, (_, n) => reading(n)),
          ),
        ),
      ).toMatchObject({
        status: 413,
        body: { code: 'TOO_LARGE' },
      })
      for (const body of [reading(1), []]) expect((await post('/readings/batch', body)).status).toBe(400)
    })

    test('tells by the business key whether a fact was processed', async () => {
      const { meter, at } = reading(5)
      expect(await get(`/readings/${meter}/${at}`)).toMatchObject({ status: 200, body: { eventId: id(5), processed: false } })
      processed.add(id(5))
      expect(await get(`/readings/${meter}/${at}?x=1`)).toMatchObject({ status: 200, body: { eventId: id(5), processed: true } })
      const odd = factId(readings.ReadingTaken, ['a/b %', '7'])
      expect(await get(`/readings/${encodeURIComponent('a/b %')}/7`)).toMatchObject({ body: { eventId: odd } })
      expect(await get(`/readings/${'x'.repeat(1_100)}`)).toMatchObject({ status: 400, type: problem })
    })

    test('keeps the keys of principals apart where told to, and answers nobody without one', async () => {
      const ask = (user: string): Promise<Response> => post('/own/readings', reading(6), user === '' ? {} : { 'x-user': user })
      expect(await seen(await ask('ann'))).toMatchObject({ status: 202, body: { eventId: id(6, 'ann') } })
      expect(await seen(await ask('bob'))).toMatchObject({ status: 202, body: { eventId: id(6, 'bob') } })
      expect(await seen(await ask(''))).toMatchObject({ status: 401, type: problem })
      const { meter, at } = reading(6)
      processed.add(id(6, 'ann'))
      expect(await get(`/own/readings/${meter}/${at}`, { 'x-user': 'ann' })).toMatchObject({ body: { processed: true } })
      expect(await get(`/own/readings/${meter}/${at}`, { 'x-user': 'bob' })).toMatchObject({ body: { processed: false } })
    })

    test('takes no cookies from pages of other origins, and no body but JSON', async () => {
      const cookie = { cookie: 'session=ann', origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' }
      for (const path of ['/readings', '/readings/batch']) {
        const body = path.endsWith('batch') ? [reading(7)] : reading(7)
        expect(await seen(await post(path, body, cookie))).toMatchObject({
          status: 403,
          type: problem,
          body: { code: 'FORBIDDEN' },
        })
        expect((await post(path, body, { 'content-type': 'text/plain' })).status).toBe(415)
        expect((await post(path, body, { ...cookie, 'sec-fetch-site': 'same-origin' })).status).toBe(202)
        expect((await post(path, body, { ...cookie, origin: 'https://app.example.com' })).status).toBe(202)
      }
    })

    test('has nothing else', async () => {
      expect(await get('/readings')).toMatchObject({ status: 404, type: problem })
      expect(await seen(await post('/readings/other', reading(1)))).toMatchObject({ status: 404, type: problem })
    })

    test('says when to come back while too much waits for the broker, and 503 when it did not confirm', async () => {
      const held3 = [10, 11, 12].map((n) => post('/slow', reading(n)))
      while (held.calls.flat().length < 3) await new Promise(setImmediate)
      expect(await seen(await post('/slow', reading(13)))).toMatchObject({
        status: 429,
        type: problem,
        retryAfter: '1',
        body: { code: 'OVERLOADED', retryable: true },
      })
      expect(await seen(await post('/slow/batch', [reading(13), reading(14)]))).toMatchObject({ status: 429, retryAfter: '1' })
      held.answer('unavailable')
      for (const answer of await Promise.all(held3))
        expect(await seen(answer)).toMatchObject({
          status: 503,
          type: problem,
          retryAfter: '1',
          body: { code: 'UNAVAILABLE', retryable: true },
        })
    })

    test('a client of ours gets everything across, whatever is refused on the way', async () => {
      held.answer('confirmed')
      const client = createIngestClient({ url: `${server.url}/slow`, backoff: { firstMs: 1, maxMs: 5, jitter: 'full' } })
      const outcomes = await client.sendMany([reading(20), {}, reading(21), reading(22), reading(23)])
      expect(outcomes.map((outcome) => (outcome.status === 'accepted' ? outcome.eventId : outcome.code))).toEqual([
        id(20),
        'INVALID_INPUT',
        id(21),
        id(22),
        id(23),
      ])
      expect(await client.send(reading(20))).toEqual({ status: 'accepted', eventId: id(20) })
      processed.add(id(20))
      expect(await client.processed(readingKey(reading(20)))).toBe(true)
    })
  })
}
