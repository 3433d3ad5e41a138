import { Hono } from 'hono'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { command } from '../command/command.ts'
import type { Commands } from '../command/commands.ts'
import { fetchCommand } from './fetch.ts'
import { honoCommand } from './hono.ts'

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

function post(body: string): Request {
  return new Request('http://service/', { method: 'POST', headers: { 'idempotency-key': 'one' }, body })
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
    headers: { 'idempotency-key': 'one' },
    body,
    duplex: 'half',
  })
  expect((await servers().handlers[name](request)).status).toBe(413)
  expect(pulled).toBeLessThan(30)
})

test.each(names)('what would change every object of the process does not get in: %s', async (name) => {
  const { handlers, inputs } = servers()
  await handlers[name](post('{"a":1,"__proto__":{"isAdmin":true}}'))
  expect(inputs).toHaveLength(1)
  expect(Object.keys(inputs[0] as object)).toEqual(['a'])
})
