/**
 * The page and what it talks to: files, a stream of snapshots (Server-Sent Events), the journey of an event, and actions.
 *
 * It listens on the loopback interface and answers only requests addressed to it by a loopback name. Actions are taken only from
 * the page itself: another site that is open in the same browser can neither read nor press anything.
 */
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface PageSource {
  /** What the page shows, as JSON. */
  snapshot(): unknown
  /** `undefined` if there is no such event. */
  journey(eventId: string): Promise<unknown>
  /** Starts what the page asks for; false if there is no such thing. */
  act(action: string, value: string | undefined): boolean
}

export interface PageServer {
  readonly url: string
  readonly port: number
  stop(): Promise<void>
}

const files: Readonly<Record<string, string>> = {
  '/': 'index.html',
  '/style.css': 'style.css',
  '/page.js': 'page.js',
  '/chart.js': 'chart.js',
  '/journey.js': 'journey.js',
  '/elements.js': 'elements.js',
  '/icon.svg': 'icon.svg',
}
const contentTypes: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
}
const securityHeaders = {
  'content-security-policy': "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
}
const snapshotEveryMs = 500
const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

export async function startPageServer(source: PageSource, port: number): Promise<PageServer> {
  const viewers = new Set<ServerResponse>()
  const server = createServer((request, response) => {
    answer(source, request, response, viewers).catch(() => {
      if (!response.headersSent) send(response, 500, { error: 'It could not be answered now.' })
    })
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const timer = setInterval(() => {
    if (viewers.size === 0) return
    const message = `data: ${JSON.stringify(source.snapshot())}\n\n`
    for (const viewer of viewers) viewer.write(message)
  }, snapshotEveryMs)
  const { port: ownPort } = server.address() as AddressInfo
  const stop = async (): Promise<void> => {
    clearInterval(timer)
    await close(server)
  }
  return { url: `http://127.0.0.1:${ownPort}`, port: ownPort, stop }
}

async function answer(
  source: PageSource,
  request: IncomingMessage,
  response: ServerResponse,
  viewers: Set<ServerResponse>,
): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://page')
  if (!isLoopback(request.headers.host)) return send(response, 403, { error: 'Use a loopback address.' })
  if (request.method === 'POST')
    return act(source, { request, response, pathname, value: searchParams.get('value') ?? undefined })
  if (request.method !== 'GET') return send(response, 405, { error: 'Use GET or POST.' })
  if (pathname === '/events') return openStream(source, response, viewers)
  if (pathname === '/journey') return await sendJourney(source, response, searchParams.get('id') ?? '')
  const file = files[pathname]
  if (file === undefined) return send(response, 404, { error: 'There is no such page.' })
  const body = await readFile(new URL(`page/${file}`, import.meta.url))
  response.writeHead(200, { ...securityHeaders, 'content-type': contentTypes[file.split('.').at(-1) ?? ''] ?? 'text/plain' })
  response.end(body)
}

interface Press {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly pathname: string
  readonly value: string | undefined
}

/** A browser tells where a request comes from, and no script of another site can lie about it. */
function act(source: PageSource, { request, response, pathname, value }: Press): void {
  const { origin, host } = request.headers
  request.resume()
  if (origin !== `http://${host}`) return send(response, 403, { error: 'Actions are taken from the page itself only.' })
  const isDone = pathname.startsWith('/actions/') && source.act(pathname.slice('/actions/'.length), value)
  send(response, isDone ? 202 : 404, isDone ? {} : { error: 'There is no such action.' })
}

function openStream(source: PageSource, response: ServerResponse, viewers: Set<ServerResponse>): void {
  response.writeHead(200, { ...securityHeaders, 'content-type': 'text/event-stream' })
  response.write(`retry: 1000\ndata: ${JSON.stringify(source.snapshot())}\n\n`)
  viewers.add(response)
  response.once('close', () => viewers.delete(response))
}

async function sendJourney(source: PageSource, response: ServerResponse, id: string): Promise<void> {
  const journey = uuid.test(id) ? await source.journey(id) : undefined
  if (journey === undefined) return send(response, 404, { error: 'There is no event with this id.' })
  send(response, 200, journey)
}

function isLoopback(host: string | undefined): boolean {
  return /^(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?$/.test(host ?? '')
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { ...securityHeaders, 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}

async function close(server: Server): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  server.closeAllConnections()
  await closed
}
