/**
 * A small HTTP server beside the work: `/metrics` for Prometheus, and the paths of a health handler (`/livez`, `/readyz`) for
 * whoever supervises the process.
 *
 * It listens on the loopback interface unless told otherwise, answers GET and HEAD alone, and reads no bodies. What it says
 * names consumers and services: give it to the network of the platform, not to the world. A page in a browser of that network, which
 * reaches it through a name of its own, is told nothing: asked by a name that is not listed it answers probes by their status alone.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { isIP } from 'node:net'
import { resolve, wholeBetween } from '../core/options.ts'
import { listenOn } from './listen-on.ts'
import type { Metrics } from './metrics.ts'

export interface TelemetryParts {
  readonly metrics?: Pick<Metrics, 'handler'> | undefined
  /** Answers every other path, Fetch style. @default 404 */
  readonly health?: ((request: Request) => Response | Promise<Response>) | undefined
  /** Names by which it is asked, such as `relay.shop.svc`, besides `localhost` and addresses. @default [] */
  readonly hosts?: readonly string[]
}

export interface TelemetryServerOptions extends TelemetryParts {
  /** @default '127.0.0.1' */
  readonly host?: string
  /** 0 takes a free one. @default 0 */
  readonly port?: number
}

export interface TelemetryServer {
  readonly url: string
  readonly port: number
  close(): Promise<void>
}

export async function startTelemetryServer(options: TelemetryServerOptions): Promise<TelemetryServer> {
  const { host, port, metrics, health, hosts } = resolve<Required<TelemetryServerOptions>>(
    'telemetry server',
    { host: '127.0.0.1', port: 0, metrics: undefined, health: undefined, hosts: [] },
    options,
    { port: wholeBetween(0, 65_535) },
  )
  return await listenOn({ host, port }, telemetryListener({ metrics, health, hosts: [host, ...hosts] }), {
    requestTimeout: 10_000,
    keepAliveTimeout: 5_000,
  })
}

/** The same for a server of `node:http` that you have already. */
export function telemetryListener(parts: TelemetryParts): (incoming: IncomingMessage, outgoing: ServerResponse) => void {
  const serve = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
    incoming.resume()
    const response = await answer(parts, incoming)
    outgoing.writeHead(response.status, { ...Object.fromEntries(response.headers), 'x-content-type-options': 'nosniff' })
    outgoing.end(Buffer.from(await response.arrayBuffer()))
  }
  return (incoming, outgoing) => {
    serve(incoming, outgoing).catch(() => {
      if (!outgoing.headersSent) outgoing.writeHead(500)
      outgoing.end()
    })
  }
}

async function answer(
  { metrics, health, hosts = [] }: TelemetryParts,
  { method, url, headers }: IncomingMessage,
): Promise<Response> {
  if (method !== 'GET' && method !== 'HEAD') return new Response(null, { status: 405, headers: { allow: 'GET, HEAD' } })
  const request = new Request(`http://localhost${url?.startsWith('/') === true ? url : '/'}`, { method })
  const isOwn = isOwnHost(headers.host, hosts)
  if (new URL(request.url).pathname === '/metrics' && metrics !== undefined)
    return isOwn ? metrics.handler(request) : new Response('This name is not listed in hosts.\n', { status: 403 })
  const response = (await health?.(request)) ?? new Response(null, { status: 404 })
  return isOwn ? response : new Response(null, { status: response.status })
}

/** An address is nobody's name: what a page can make point here is a name of its own. */
function isOwnHost(header: string | undefined, hosts: readonly string[]): boolean {
  if (header === undefined) return true
  const name = header
    .replace(/:\d*$/, '')
    .replace(/^\[(.*)\]$/, '$1')
    .toLowerCase()
  return name === 'localhost' || isIP(name) !== 0 || hosts.some((host) => host.toLowerCase() === name)
}
