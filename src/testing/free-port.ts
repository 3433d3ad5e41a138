/**
 * Finds a port of the loopback interface that nobody listens on, below the range that systems take for outgoing connections.
 *
 * A service that is killed and started again wants its old port back. In the range of outgoing connections it may be gone: to
 * any client, even to one that tries to reach the service and is connected to itself. Another process may still take the port
 * before it is used, so whoever starts a service on it tries again with another.
 */
import { randomInt } from 'node:crypto'
import { createServer } from 'node:net'

/** Returns a port that was free a moment ago. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(15_000, 30_000)
    if (await isFree(port)) return port
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}
