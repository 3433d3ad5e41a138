import { gzipSync } from 'node:zlib'
import express from 'express'
import { fastify } from 'fastify'
import { Hono } from 'hono'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { command } from '../command/model/command.ts'
import type { Commands } from '../command/commands.ts'
import { listen } from '../../test/integrations/listen.ts'
import { readings, readingKey } from '../../test/ingest/readings.ts'
import { createIngest } from '../ingest/ingest.ts'
import { memory } from '../transport/memory/memory.ts'
import { expressCommand } from './express.ts'
import { fastifyCommand } from './fastify.ts'
import { fetchCommand, fetchIngest } from './fetch.ts'
import { honoCommand, honoIngest } from './hono.ts'

const note = command('Note', { input: z.unknown(), execute: async () => ({}) })
const principal = (): string => 'ann'

/** Servers of one command that keep the inputs they were given. */
function servers() {
  const inputs: unknown[] = []
  const commands = {
    run: async (_command: unknown, { input }: { readonly input: unknown }) => {
      inputs.push(input)
      return { status: 'executed', response: {}, token: undefined, attempts: 1 }
    },
  } as unknown as Pick<Commands, 'run'>
  const hono = new Hono().post('/', honoCommand(commands, note, { principal }))
  const afterText = new Hono()
  afterText.use(async (context, next) => {
    await context.req.text()
    await next()
  })
  afterText.post('/', honoCommand(commands, note, { principal }))
  const afterJson = new Hono()
  afterJson.use(async (context, next) => {
    await context.req.json()
    await next()
  })
  afterJson.post('/', honoCommand(commands, note, { principal }))
  return {
    commands,
    inputs,
    handlers: {
      fetch: fetchCommand(commands, note, { principal }),
      hono: (request: Request) => hono.fetch(request),
      'hono, whose middleware read the text': (request: Request) => afterText.fetch(request),
      'hono, whose middleware read the JSON': (request: Request) => afterJson.fetch(request),
    },
  }
}

const names = Object.keys(servers().handlers) as (keyof ReturnType<typeof servers>['handlers'])[]

const json = { 'content-type': 'application/json', 'idempotency-key': 'one' }

function post(body: RequestInit['body'], headers: Readonly<Record<string, string>> = json): Request {
  return new Request('http://service/', { method: 'POST', headers, ...(body === undefined ? {} : { body }) })
}

test.each([99, 101, 200.5, 600])('a status that cannot be answered is refused before any command runs: %d', (status) => {
  expect(() => fetchCommand(servers().commands, note, { principal, status })).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringContaining('200 to 599') }),
  )
})

test.each([Number.NaN, -1, 0.5, 60_001])('a wait that is no time is refused before any command runs: %d', (waitForWinnerMs) => {
  expect(() => fetchCommand(servers().commands, note, { principal, waitForWinnerMs })).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringContaining('waitForWinnerMs') }),
  )
})

test.each([204, 205, 304])('a status that has no body is answered without the response: %i', async (status) => {
  const { commands } = servers()
  const hono = new Hono().post('/', honoCommand(commands, note, { principal, status }))
  for (const handler of [fetchCommand(commands, note, { principal, status }), (request: Request) => hono.fetch(request)]) {
    const answer = await handler(post('{}'))
    expect([answer.status, answer.headers.get('content-type'), answer.body]).toEqual([status, null, null])
  }
})

test.each(names)('a body above the limit is refused as too large, and never run: %s', async (name) => {
  const { handlers, inputs } = servers()
  const answer = await handlers[name](post(JSON.stringify('x'.repeat(1_048_577))))
  expect(answer.status).toBe(413)
  expect(await answer.json()).toMatchObject({ code: 'TOO_LARGE', retryable: false })
  expect((await handlers[name](post(JSON.stringify('x'.repeat(1_048_574))))).status).toBe(200)
  expect(inputs).toHaveLength(1)
})

test.each(['fetch', 'hono'] as const)('no more of a body is read than it takes to refuse it: %s', async (name) => {
  let pulled = 0
  const body = new ReadableStream<Uint8Array>({
    pull: (controller) => {
      pulled += 1
      if (pulled > 1_000) controller.close()
      else controller.enqueue(new Uint8Array(65_536).fill(32))
    },
  })
  const request = new Request('http://service/', {
    method: 'POST',
    headers: json,
    body,
    duplex: 'half',
  })
  expect((await servers().handlers[name](request)).status).toBe(413)
  expect(pulled).toBeLessThan(30)
})

const inexact: readonly (readonly [string, RegExp])[] = [
  ['{"a":9007199254740993}', /number 9007199254740993.*string/],
  ['{"a":1e400}', /string/],
  ['{"a":1,"__proto__":{"isAdmin":true}}', /"__proto__"/],
  ['{"constructor":{"prototype":{"isAdmin":true}}}', /"constructor"/],
]

test.each(names)(
  'a body that would be read as another one is refused with what to send instead, and never run: %s',
  async (name) => {
    const { handlers, inputs } = servers()
    const doubled: typeof inexact = name.endsWith('read the JSON') ? [] : [['{"a":1,"a":2}', /"a" twice/]]
    for (const [body, sentence] of [
      ...inexact.map(([text, why]) => [text, name.endsWith('read the JSON') ? /string|"/ : why] as const),
      ...doubled,
    ]) {
      const answer = await handlers[name](post(body))
      expect([answer.status, await answer.json()]).toMatchObject([
        400,
        { code: 'INVALID_INPUT', retryable: false, detail: expect.stringMatching(sentence) },
      ])
    }
    expect(inputs).toEqual([])
  },
)

test.each(names)(
  'a body that another site could send with the cookies of a user is refused with 415, and never run: %s',
  async (name) => {
    const { handlers, inputs } = servers()
    const types = [
      'text/plain',
      'text/plain;charset=UTF-8',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'text/plain; application/json',
      undefined,
    ]
    for (const type of types) {
      const body = type === undefined ? new Blob(['{"a":1}']) : '{"a":1}'
      const answer = await handlers[name](
        post(body, { 'idempotency-key': 'one', ...(type === undefined ? {} : { 'content-type': type }) }),
      )
      expect([answer.status, await answer.json()]).toMatchObject([
        415,
        { code: 'UNSUPPORTED_MEDIA_TYPE', retryable: false, detail: expect.stringContaining('Content-Type: application/json') },
      ])
    }
    expect(inputs).toEqual([])
  },
)

test.each(['application/json', 'application/json; charset=utf-8', 'Application/JSON', 'application/merge-patch+json'])(
  'a body that is declared as JSON is taken: %s',
  async (type) => {
    const { handlers, inputs } = servers()
    expect((await handlers.fetch(post('{"a":1}', { ...json, 'content-type': type }))).status).toBe(200)
    expect(inputs).toEqual([{ a: 1 }])
  },
)

test('a request without a body needs no type', async () => {
  const { handlers, inputs } = servers()
  for (const name of ['fetch', 'hono'] as const)
    expect((await handlers[name](post(undefined, { 'idempotency-key': 'one' }))).status).toBe(200)
  expect(inputs).toEqual([undefined, undefined])
})

test.each(['fetch', 'hono'] as const)('a compressed body is refused with 415 and what to send instead: %s', async (name) => {
  const { handlers, inputs } = servers()
  const answer = await handlers[name](post(gzipSync('{"a":1}'), { ...json, 'content-encoding': 'gzip' }))
  expect([answer.status, answer.headers.get('accept-encoding'), await answer.json()]).toMatchObject([
    415,
    'identity',
    { code: 'UNSUPPORTED_MEDIA_TYPE', retryable: false, detail: expect.stringContaining('without Content-Encoding') },
  ])
  expect(inputs).toEqual([])
})

test('an ingest takes no body that another site could send, nor one that would be read as another fact', async () => {
  const broker = memory()
  const ingest = createIngest({ event: readings.ReadingTaken, key: readingKey, to: broker })
  const hono = new Hono().all('/', honoIngest(ingest, { path: '/' }))
  for (const handler of [fetchIngest(ingest, { path: '/' }), (request: Request) => hono.fetch(request)]) {
    const fact = '{"meter":"m","at":1,"value":2}'
    expect((await handler(post(fact, { 'content-type': 'text/plain' }))).status).toBe(415)
    expect((await handler(post('{"meter":"m","at":1,"value":9007199254740993}'))).status).toBe(400)
    expect((await handler(post(fact))).status).toBe(202)
  }
  expect(broker.published).toHaveLength(2)
})

/** Servers that parse the body before we see it, with and without keeping its bytes. */
const parsing = {
  express: async (keepsBytes: boolean) => {
    const { commands, inputs } = servers()
    const verify = (request: object, _response: unknown, bytes: Buffer): void => void Object.assign(request, { rawBody: bytes })
    const app = express()
    app.post('/', express.json(keepsBytes ? { verify } : {}), expressCommand(commands, note, { principal }))
    return { inputs, ...(await listen(app)) }
  },
  fastify: async (keepsBytes: boolean) => {
    const { commands, inputs } = servers()
    const app = fastify()
    if (keepsBytes) {
      app.decorateRequest('rawBody')
      app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
        Object.assign(request, { rawBody: body })
        done(null, JSON.parse(body as string))
      })
    }
    app.post('/', fastifyCommand(commands, note, { principal }))
    return { inputs, url: await app.listen({ port: 0, host: '127.0.0.1' }), close: () => app.close() }
  },
} as const

test.each([
  ['express', false],
  ['express', true],
  ['fastify', false],
  ['fastify', true],
] as const)(
  'behind %s, which parses the body first, the same is refused as far as it shows (its bytes are kept: %s)',
  async (name, keepsBytes) => {
    const { inputs, url, close } = await parsing[name](keepsBytes)
    try {
      const send = async (body: string, type: string): Promise<number> =>
        (await fetch(url, { method: 'POST', headers: { ...json, 'content-type': type }, body })).status
      // A name that comes twice shows in the bytes alone.
      const bodies = [...inexact.map(([body]) => body), ...(keepsBytes ? ['{"a":1,"a":2}'] : [])]
      for (const body of bodies) expect([body, await send(body, 'application/json')]).toEqual([body, 400])
      for (const type of ['text/plain', 'application/x-www-form-urlencoded']) expect(await send('a=1', type)).toBe(415)
      expect(inputs).toEqual([])
      expect(await send('{"a":1}', 'application/json')).toBe(200)
      expect(inputs).toEqual([{ a: 1 }])
    } finally {
      await close()
    }
  },
)

test('an ingest whose senders are known has to be told whose the keys are', () => {
  const ingest = createIngest({ event: readings.ReadingTaken, key: readingKey, to: memory() })
  expect(() => fetchIngest(ingest, { path: '/readings', principal })).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringContaining('say whose keys they are') }),
  )
  for (const scope of ['everyone', 'principal'] as const)
    expect(() => fetchIngest(ingest, { path: '/readings', principal, scope })).not.toThrow()
})

test.each([['https://app.example.com/'], ['app.example.com'], ['*'], [7], 'https://app.example.com'].map((list) => [list]))(
  'a list of allowed origins that holds anything else is refused: %j',
  (allowedOrigins) => {
    const options = { principal, allowedOrigins: allowedOrigins as never }
    expect(() => fetchCommand(servers().commands, note, options)).toThrow(/allowedOrigins: must be a list of origins/)
  },
)

test('a page of the service itself is known by the address where a server gives no host', async () => {
  const { handlers } = servers()
  const from = (origin: string): Request => post('{}', { ...json, cookie: 'a=b', origin })
  for (const name of ['fetch', 'hono'] as const)
    expect([(await handlers[name](from('http://service'))).status, (await handlers[name](from('http://other'))).status]).toEqual([
      200, 403,
    ])
})
