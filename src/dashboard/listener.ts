/**
 * A Fetch-style handler as a listener of `node:http`, which is what Express takes, too.
 *
 * Express cuts the mount path off `url` and keeps the whole in `originalUrl`; a body that its parser has read already is taken from
 * `body`.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { TLSSocket } from 'node:tls'
import { WaybillError } from '../core/errors.ts'
import { answerError } from './answers.ts'

/** `next`, which Express passes, is told what `authorize` throws. */
export type Listener = (incoming: IncomingMessage, outgoing: ServerResponse, next?: (error: unknown) => void) => void

/** What a server puts beside the request that Node knows. */
type Incoming = IncomingMessage & { readonly originalUrl?: string; readonly body?: unknown }

export function createListener(handler: (request: Request) => Promise<Response>, maxBytes: number): Listener {
  const serve = async (incoming: Incoming, outgoing: ServerResponse): Promise<void> => {
    const request = await requestOf(incoming, maxBytes).catch(answerError)
    const response = request instanceof Response ? request : await handler(request)
    // What is left of a body that was not wanted must not be taken for the next request.
    if (!incoming.complete) outgoing.shouldKeepAlive = false
    const cookies = response.headers.getSetCookie()
    outgoing.writeHead(response.status, {
      ...Object.fromEntries(response.headers),
      ...(cookies.length === 0 ? {} : { 'set-cookie': cookies }),
    })
    outgoing.end(Buffer.from(await response.arrayBuffer()))
  }
  return (incoming, outgoing, next) => {
    serve(incoming, outgoing).catch((error: unknown) => {
      if (next !== undefined) return next(error)
      if (!outgoing.headersSent) outgoing.writeHead(500)
      outgoing.end()
    })
  }
}

/** Others are refused by their names, and some cannot be told to a handler at all. */
const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']
/** One with more in it would move the path. */
const plainHost = /^[^\s/?#@\\]+$/

async function requestOf(incoming: Incoming, maxBytes: number): Promise<Request> {
  const { method = 'GET', socket } = incoming
  const path = incoming.originalUrl ?? incoming.url ?? '/'
  const scheme = (socket as Partial<TLSSocket>).encrypted === true ? 'https' : 'http'
  const host = incoming.headers.host ?? String(incoming.headers[':authority'] ?? 'localhost')
  const url = `${scheme}://${host}${path}`
  if (!methods.includes(method) || !plainHost.test(host) || !path.startsWith('/') || !URL.canParse(url))
    throw new WaybillError('INVALID_INPUT', 'The request cannot be read.')
  const headers = new Headers()
  for (const [name, value] of Object.entries(incoming.headers))
    if (value !== undefined && !name.startsWith(':')) headers.set(name, Array.isArray(value) ? value.join(', ') : value)
  if (method === 'GET' || method === 'HEAD') return new Request(url, { method, headers })
  return new Request(url, { method, headers, body: await bodyOf(incoming, maxBytes) })
}

async function bodyOf(incoming: Incoming, maxBytes: number): Promise<Buffer<ArrayBuffer>> {
  if (incoming.body !== undefined) return Buffer.from(JSON.stringify(incoming.body))
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    bytes += chunk.byteLength
    if (bytes > maxBytes) throw new WaybillError('TOO_LARGE', `The body has more than ${maxBytes} bytes.`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
