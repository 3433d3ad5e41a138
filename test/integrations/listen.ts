/** Serves on a free port of the loopback interface. */
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'

export async function listen(
  handler: RequestListener,
): Promise<{ readonly url: string; readonly close: () => Promise<unknown> }> {
  const server = createServer(handler)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      return closed
    },
  }
}

/** A handler of Fetch behind Node's server. */
export function nodeListener(handle: (request: Request) => Response | Promise<Response>): RequestListener {
  return (incoming, outgoing) => {
    void (async () => {
      const chunks: Buffer[] = []
      for await (const chunk of incoming) chunks.push(chunk as Buffer)
      const body = chunks.length === 0 ? {} : { body: Buffer.concat(chunks) }
      const headers = Object.entries(incoming.headers).map(([name, value]) => [name, String(value)] as [string, string])
      const gone = new AbortController()
      outgoing.once('close', () => gone.abort())
      const { url = '/', method = 'GET' } = incoming
      const response = await handle(new Request(`http://localhost${url}`, { method, headers, signal: gone.signal, ...body }))
      outgoing.writeHead(response.status, Object.fromEntries(response.headers))
      outgoing.end(Buffer.from(await response.arrayBuffer()))
    })()
  }
}
