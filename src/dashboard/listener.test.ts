import { once } from 'node:events'
import { request, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import express, { type ErrorRequestHandler } from 'express'
import { afterEach, expect, test } from 'vitest'
import { listen } from '../../test/integrations/listen.ts'
import { isWaybillError, meaningOf } from '../core/errors.ts'
import { readJson } from '../core/encoding/read-json.ts'
import { createListener } from './listener.ts'

const meaningOfError = (error: unknown): number => (isWaybillError(error) ? meaningOf(error.code).http : 500)

const closers: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

/** Says what of a request arrived. */
const echo = createListener(async (asked) => {
  const headers = new Headers({ 'content-type': 'application/json' })
  headers.append('set-cookie', 'one=1; Path=/')
  headers.append('set-cookie', 'two=2; Path=/')
  const body = asked.method === 'POST' ? await asked.text() : undefined
  return Response.json(
    { method: asked.method, url: asked.url, cookie: asked.headers.get('cookie'), body },
    { status: 201, headers },
  )
})

async function serve(listener: Parameters<typeof listen>[0]): Promise<string> {
  const { url, close } = await listen(listener)
  closers.push(close)
  return url
}

test('a request arrives whole, and every cookie goes back', async () => {
  const url = await serve(echo)
  const response = await fetch(`${url}/ops//a?b=c`, { method: 'POST', headers: { cookie: 'a=b; c=d' }, body: '{"x":1}' })
  expect({ status: response.status, cookies: response.headers.getSetCookie(), body: await response.json() }).toEqual({
    status: 201,
    cookies: ['one=1; Path=/', 'two=2; Path=/'],
    body: { method: 'POST', url: `${url}/ops//a?b=c`, cookie: 'a=b; c=d', body: '{"x":1}' },
  })
})

test('under Express it sees the whole path, also behind a parser that has read the body', async () => {
  const url = await serve(express().use(express.json()).use('/ops', echo))
  const sent = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{ "x": 1 }' }
  expect(await (await fetch(`${url}/ops/a`, sent)).json()).toMatchObject({ url: `${url}/ops/a`, body: '{"x":1}' })
  expect(await (await fetch(`${url}/ops/a`)).json()).toMatchObject({ method: 'GET', url: `${url}/ops/a` })
})

test('a body that the handler reads is bounded by it, and the connection is not used again', async () => {
  const bounded = createListener(async (asked) => {
    const size = await readJson(asked, 100).then(() => 200, meaningOfError)
    return new Response(null, { status: size })
  })
  const response = await fetch(await serve(bounded), { method: 'POST', body: `"${'x'.repeat(1_000_000)}"` })
  expect({ status: response.status, connection: response.headers.get('connection') }).toEqual({
    status: 413,
    connection: 'close',
  })
})

test('a request takes nothing from its connection before the handler asks for it', async () => {
  const heard: boolean[] = []
  const listener = createListener(async (asked) => {
    const incoming = last
    await new Promise(setImmediate)
    heard.push(incoming?.readableDidRead ?? true)
    await asked.text()
    heard.push(incoming?.readableDidRead ?? false)
    return new Response(null)
  })
  let last: IncomingMessage | undefined
  const url = await serve((incoming, outgoing) => {
    last = incoming
    listener(incoming, outgoing)
  })
  await fetch(url, { method: 'POST', body: 'x' })
  expect(heard).toEqual([false, true])
})

test('a request is answered before its body has come, if the handler does not want it', async () => {
  const url = new URL(await serve(createListener(async () => new Response(null, { status: 403 }))))
  const socket = connect(Number(url.port), url.hostname)
  closers.push(async () => socket.destroy())
  socket.write(`POST / HTTP/1.1\r\nhost: ${url.host}\r\ncontent-length: 10000000\r\n\r\nsome`)
  const [answer] = (await once(socket, 'data')) as [Buffer]
  expect(answer.toString()).toMatch(/^HTTP\/1\.1 403 [^]*connection: close/i)
})

test.each([
  { headers: { host: 'a b' } },
  { headers: { host: 'ops/api/overview?x=' } },
  { headers: { host: 'user@ops' } },
  { method: 'TRACE' },
  { path: 'http://elsewhere/api' },
])('a request that is none is refused: %j', async (given) => {
  const { port } = new URL(await serve(echo))
  const status = await new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, path: '/', ...given }, (answer) => {
      answer.resume()
      resolve(answer.statusCode)
    })
    asked.on('error', reject).end()
  })
  expect(status).toBe(400)
})

test('what the handler throws is told to the next of Express, which knows what to do with it', async () => {
  const heard: unknown[] = []
  const failing = createListener(() => Promise.reject(new Error('no session store')))
  const app = express().use('/ops', failing)
  app.use(((error, _request, response, _next) => {
    heard.push(error)
    response.status(502).end()
  }) satisfies ErrorRequestHandler)
  const response = await fetch(`${await serve(app)}/ops/`)
  expect({ status: response.status, heard }).toMatchObject({ status: 502, heard: [{ message: 'no session store' }] })
})

test('what the handler throws is not told', async () => {
  const url = await serve(createListener(() => Promise.reject(new Error('no session store'))))
  const response = await fetch(url)
  expect({ status: response.status, body: await response.text() }).toEqual({ status: 500, body: '' })
})
