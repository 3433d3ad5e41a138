/**
 * A server that is shutting down: it lets each client in and ends its connection in the same breath, in one segment, so that both
 * are read before anything that waits for the connection has its turn.
 */
import { connect, createServer, type AddressInfo } from 'node:net'

/** The address of such a server, and how to stop it. */
export async function endingServer(): Promise<{ readonly url: string; readonly stop: () => Promise<void> }> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    socket.once('data', () => socket.end(Buffer.concat([welcome, goodbye])))
  })
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  return {
    url: `postgres://nobody@127.0.0.1:${(server.address() as AddressInfo).port}/nothing`,
    stop: () => new Promise<void>((stopped) => server.close(() => stopped())),
  }
}

/** Clients that say something and reset their connections, at once and, if they are answered, after the first bytes of that. */
export async function rudeGuests(
  address: { readonly host: string; readonly port: number },
  words: string | Buffer,
  { answered = true }: { readonly answered?: boolean } = {},
): Promise<void> {
  const visit = (waits: boolean): Promise<void> =>
    new Promise((done) => {
      const guest = connect(address.port, address.host)
      guest.on('error', () => undefined).on('close', () => done())
      guest.write(words, () => (waits ? undefined : guest.resetAndDestroy()))
      guest.on('data', () => guest.resetAndDestroy())
      guest.on('end', () => guest.destroy())
    })
  for (let round = 0; round < 20; round += 1) await Promise.all([visit(false), visit(answered)])
}

/** What nobody caught while `work` ran: outside of a test, the first of them ends the process. */
export async function uncaughtDuring(work: () => Promise<unknown>): Promise<readonly Error[]> {
  const uncaught: Error[] = []
  const collect = (error: Error): void => void uncaught.push(error)
  const others = process.listeners('uncaughtException')
  process.removeAllListeners('uncaughtException').on('uncaughtException', collect)
  try {
    await work()
    await new Promise((resolve) => setImmediate(resolve))
  } finally {
    process.removeListener('uncaughtException', collect)
    others.forEach((listener) => process.on('uncaughtException', listener))
  }
  return uncaught
}

function message(type: string, body: string): Buffer {
  const bytes = Buffer.from(body, 'latin1')
  const head = Buffer.alloc(5)
  head.write(type, 0)
  head.writeInt32BE(bytes.length + 4, 1)
  return Buffer.concat([head, bytes])
}

/** AuthenticationOk and ReadyForQuery. */
const welcome = Buffer.concat([message('R', '\0\0\0\0'), message('Z', 'I')])
const goodbye = message('E', 'SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0')
