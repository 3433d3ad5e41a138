/**
 * Watching the server and switching faults over HTTP, while clients are at work.
 *
 *   GET /stats · GET /faults · PUT /faults (JSON) · DELETE /faults · POST /cut-streams
 *
 * It listens on the loopback interface and answers only requests addressed to it by a loopback name, so that a page
 * in a browser cannot reach it through a name of its own.
 */
import { createServer } from 'node:http'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { FaultOptions, Faults } from './model/faults.ts'
import { errorMessage } from './model/rpc-error.ts'
import { PubsubServerError } from './model/server-error.ts'

export interface AdminTarget {
  readonly faults: Faults
  stats(): unknown
  cutStreams(): number
}

export interface AdminEndpoint {
  readonly url: string
  close(): Promise<void>
}

const maxBodyBytes = 64 * 1024

export async function openAdminEndpoint(target: AdminTarget, port: number): Promise<AdminEndpoint> {
  const server = createServer((request, response) => {
    void answer(target, request).then(
      ({ status, body }) => send(response, status, body),
      (error: unknown) => send(response, error instanceof PubsubServerError ? 400 : 500, { error: errorMessage(error) }),
    )
  })
  await listen(server, port)
  const { port: ownPort } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${ownPort}`,
    close: () =>
      new Promise((done) => {
        server.close(() => done())
        server.closeAllConnections()
      }),
  }
}

interface Answer {
  readonly status: number
  readonly body: unknown
}

async function answer(target: AdminTarget, request: IncomingMessage): Promise<Answer> {
  const host = (request.headers.host ?? '').replace(/:\d+$/, '')
  if (host !== '127.0.0.1' && host !== 'localhost' && host !== '[::1]')
    return { status: 403, body: { error: 'Use a loopback address.' } }
  // A page of another origin may send a plain POST without asking first.
  const { origin, 'sec-fetch-site': site = 'none' } = request.headers
  const isForeign = origin !== undefined && origin !== `http://${request.headers.host}`
  if (isForeign || (site !== 'none' && site !== 'same-origin'))
    return { status: 403, body: { error: 'A page of another origin may not ask this server.' } }
  const { faults } = target
  switch (`${request.method ?? ''} ${request.url ?? ''}`) {
    case 'GET /stats':
      return { status: 200, body: target.stats() }
    case 'PUT /faults':
      faults.set(await readJson(request))
      return { status: 200, body: shown(faults) }
    case 'DELETE /faults':
      faults.clear()
      return { status: 200, body: shown(faults) }
    case 'GET /faults':
      return { status: 200, body: shown(faults) }
    case 'POST /cut-streams':
      return { status: 200, body: { cut: target.cutStreams() } }
    default:
      return { status: 404, body: { error: 'Known: GET /stats, GET|PUT|DELETE /faults, POST /cut-streams.' } }
  }
}

function shown(faults: Faults): unknown {
  return { options: faults.options, fired: faults.fired }
}

async function readJson(request: IncomingMessage): Promise<FaultOptions> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > maxBodyBytes) throw new Error('The request is too large.')
    chunks.push(chunk)
  }
  const value: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'))
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error('An object of probabilities is expected.')
  return value
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json', 'x-content-type-options': 'nosniff' })
  response.end(JSON.stringify(body))
}

function listen(server: Server, port: number): Promise<void> {
  return new Promise((done, failed) => {
    server.once('error', failed)
    server.listen(port, '127.0.0.1', done)
  })
}
