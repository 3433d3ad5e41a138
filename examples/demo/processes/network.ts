/**
 * The network between the processes and what they stand on, as a thread of its own: fault proxies that can all be cut at once.
 *
 * A thread, so that whatever keeps the demo's main thread busy does not slow down every statement of every process.
 */
import { parentPort } from 'node:worker_threads'
import { startFaultProxy, type FaultProxy } from 'waybill/testing'

/** What the main thread asks for; each is answered with the same `number`. */
export type NetworkRequest = { readonly number: number } & (
  | { readonly op: 'open'; readonly host: string; readonly port: number }
  | { readonly op: 'cut' | 'heal' }
)

/** The port of a proxy that was opened, or how many connections were cut. */
export interface NetworkAnswer {
  readonly number: number
  readonly value: number
}

const proxies: FaultProxy[] = []

async function answer(request: NetworkRequest): Promise<number> {
  if (request.op === 'open') {
    const proxy = await startFaultProxy({ target: { host: request.host, port: request.port } })
    proxies.push(proxy)
    return proxy.port
  }
  const connections = proxies.reduce((sum, proxy) => sum + proxy.connections, 0)
  for (const proxy of proxies) {
    if (request.op === 'heal') proxy.heal()
    else {
      proxy.refuse()
      proxy.cut()
    }
  }
  return connections
}

parentPort?.on('message', (request: NetworkRequest) => {
  void answer(request).then((value) => parentPort?.postMessage({ number: request.number, value } satisfies NetworkAnswer))
})
