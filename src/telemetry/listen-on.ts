/**
 * An HTTP server on an address, and its end: also of the connections that browsers and probes keep open.
 */
import { once } from 'node:events'
import { createServer, type RequestListener, type ServerOptions } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Listening {
  readonly url: string
  readonly port: number
  close(): Promise<void>
}

/** A port of 0 takes a free one. Rejects if the address cannot be had. */
export async function listenOn(
  { host, port }: { readonly host: string; readonly port: number },
  listener: RequestListener,
  options: ServerOptions,
): Promise<Listening> {
  const server = createServer(options, listener)
  server.listen(port, host)
  await once(server, 'listening')
  const bound = (server.address() as AddressInfo).port
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}`,
    port: bound,
    close: async () => {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}
