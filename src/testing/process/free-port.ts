/**
 * Finds a port of the loopback interface that nobody listens on, below the range that systems take for outgoing connections.
 *
 * A service that is killed and started again wants its old port back. In the range of outgoing connections it may be gone: to
 * any client, even to one that tries to reach the service and is connected to itself. Another process may still take the port
 * before it is used, so whoever starts a service on it tries again with another (`onFreePort`).
 */
import { randomInt } from 'node:crypto'
import { createServer } from 'node:net'

const attempts = 5

/** Returns a port that was free a moment ago. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(15_000, 30_000)
    if (await isFree(port)) return port
  }
}

/** Starts a service on a free port, and on another one if somebody took that meanwhile. */
export function onFreePort<Service>(start: (port: number) => Promise<Service>): Promise<Service> {
  return onFreePorts(1, ([port]) => start(port as number))
}

/** The same for services that need several ports: no two of them are equal, and all of them are others the next time. */
export async function onFreePorts<Service>(
  count: number,
  start: (ports: readonly number[]) => Promise<Service>,
): Promise<Service> {
  for (let attempt = 1; ; attempt += 1) {
    const ports = new Set<number>()
    while (ports.size < count) ports.add(await freePort())
    try {
      return await start([...ports])
    } catch (error) {
      if (attempt === attempts || !isTaken(error)) throw error
    }
  }
}

/** Services end with these words in their logs, which the error shows. */
function isTaken(error: unknown): boolean {
  return error instanceof Error && /could not bind|address already in use/i.test(error.message)
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}
