/**
 * A Fetch-style handler as a listener of `node:http`, which is what Express takes, too.
 *
 * Express cuts the mount path off `url` and keeps the whole in `originalUrl`; a body that its parser has read already is taken from
 * `body`. Any other is read when the handler asks for it: not before it knows who sent it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { TLSSocket } from 'node:tls'
import { WaybillError } from '../core/errors.ts'
import { answerError } from './answers.ts'

/** `next`, which Express passes, is told what `authorize` throws. */
export type Listener = (incoming: IncomingMessage, outgoing: ServerResponse, next?: (error: unknown) => void) => void

/** What a server puts beside the request that Node knows. */
type Incoming = IncomingMessage & { readonly originalUrl?: string; readonly body?: unknown }

export function createListener(handler: (request: Request) => Promise<Response>): Listener {
  const serve = async (incoming: Incoming, outgoing: ServerResponse): Promise<void> => {
    const request = requestOf(incoming)
    const response = request === undefined ? answerError(unreadable()) : await handler(request)
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

function requestOf(incoming: Incoming): Request | undefined {
  const { method = 'GET', socket } = incoming
  const path = incoming.originalUrl ?? incoming.url ?? '/'
  const scheme = (socket as Partial<TLSSocket>).encrypted === true ? 'https' : 'http'
  const host = incoming.headers.host ?? String(incoming.headers[':authority'] ?? 'localhost')
  const url = `${scheme}://${host}${path}`
  if (!methods.includes(method) || !plainHost.test(host) || !path.startsWith('/') || !URL.canParse(url)) return undefined
  const headers = new Headers()
  for (const [name, value] of Object.entries(incoming.headers))
    if (value !== undefined && !name.startsWith(':')) headers.set(name, Array.isArray(value) ? value.join(', ') : value)
  if (method === 'GET' || method === 'HEAD') return new Request(url, { method, headers })
  const body = incoming.body === undefined ? unread(incoming) : JSON.stringify(incoming.body)
  return new Request(url, { method, headers, body, duplex: 'half' })
}

function unreadable(): WaybillError {
  return new WaybillError('INVALID_INPUT', 'The request cannot be read.')
}

/** Nothing of it is taken from the connection before it is asked for. */
function unread(incoming: Incoming): ReadableStream<Uint8Array> {
  const chunks = (incoming as AsyncIterable<Buffer>)[Symbol.asyncIterator]()
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
    const { done, value } = await chunks.next()
    if (done === true) controller.close()
    else controller.enqueue(value)
  }
  return new ReadableStream({ pull }, { highWaterMark: 0 })
}
