/**
 * A Redis of its own, on machines that have a `redis-server`.
 *
 * It keeps everything in memory, listens on the loopback interface only, and can be killed, frozen or flushed, which
 * are the ways in which a cache lets its users down.
 */
import { once } from 'node:events'
import { connect } from 'node:net'

import { WaybillError } from '../../core/errors.ts'
import { findProgram } from '../process/find-program.ts'
import { onFreePort } from '../process/free-port.ts'
import { startService } from '../process/service-process.ts'
import type { ServiceProcess } from '../process/service-process.ts'

/** A running Redis. */
export interface Redis extends ServiceProcess {
  readonly url: string
  readonly host: string
  readonly port: number
  /** Forgets every key at once. */
  flush(): Promise<void>
}

/** The program's path, or undefined where the machine has none. */
export function findRedis(): string | undefined {
  return findProgram('redis-server')
}

/** Starts a Redis and returns when it accepts connections. */
export async function startRedis(options: { readonly port?: number } = {}): Promise<Redis> {
  const program = findRedis()
  if (program === undefined) {
    throw new WaybillError(
      'NOT_FOUND',
      'There is no "redis-server" on this machine. Install it (Debian: apt-get install redis-server).',
    )
  }
  return await (options.port === undefined ? onFreePort((port) => startOn(port, program)) : startOn(options.port, program))
}

async function startOn(port: number, program: string): Promise<Redis> {
  const host = '127.0.0.1'
  const service = await startService({
    name: 'redis',
    program,
    readyText: 'Ready to accept connections',
    prepare: (folder) => ['--bind', host, '--port', String(port), '--dir', folder, '--save', '', '--appendonly', 'no'],
  })
  return { ...service, url: `redis://${host}:${port}`, host, port, flush: () => flush(host, port) }
}

/** Spoken by hand, because Redis is optional and so is every client of it. */
async function flush(host: string, port: number): Promise<void> {
  const socket = connect(port, host)
  try {
    await once(socket, 'connect')
    socket.write('FLUSHALL\r\n')
    const [reply] = (await once(socket, 'data')) as [Buffer]
    if (!reply.toString().startsWith('+OK'))
      throw new WaybillError('UNAVAILABLE', `Redis did not flush: ${reply.toString().trim()}`)
  } finally {
    socket.destroy()
  }
}
