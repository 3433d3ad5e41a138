/**
 * The one call of Redis that the command cache needs, spoken by hand: drills depend on no client.
 *
 * Calls are answered in order. A connection that breaks fails what waits for it; the next call opens another.
 */
import { connect, type Socket } from 'node:net'
import { WaybillError } from '../../core/errors.ts'
import type { IoRedisClient } from '../../command/cache/redis.ts'

interface Waiting {
  readonly done: (reply: string | number | null) => void
  readonly fail: (error: Error) => void
}

export class RedisLink implements IoRedisClient {
  readonly #address: { readonly host: string; readonly port: number }
  #socket: Socket | undefined
  #waiting: Waiting[] = []
  #rest: Buffer = Buffer.alloc(0)

  constructor({ host, port }: { readonly host: string; readonly port: number }) {
    this.#address = { host, port }
  }

  eval(script: string, numberOfKeys: number, ...keysAndArguments: string[]): Promise<unknown> {
    const words = ['EVAL', script, String(numberOfKeys), ...keysAndArguments]
    const request = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')
    return new Promise((done, fail) => {
      this.#waiting.push({ done, fail })
      this.#open().write(`*${words.length}\r\n${request}`)
    })
  }

  close(): void {
    this.#socket?.destroy()
  }

  #open(): Socket {
    if (this.#socket !== undefined) return this.#socket
    const socket = connect(this.#address)
    this.#socket = socket
    this.#rest = Buffer.alloc(0)
    socket.on('data', (bytes: Buffer) => this.#read(bytes))
    socket.on('error', () => {})
    socket.on('close', () => {
      if (this.#socket === socket) this.#socket = undefined
      for (const { fail } of this.#waiting.splice(0)) fail(new WaybillError('UNAVAILABLE', 'The connection to Redis is gone.'))
    })
    return socket
  }

  #read(bytes: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, bytes])
    for (;;) {
      const end = this.#rest.indexOf('\r\n')
      if (end === -1) return
      const kind = String.fromCharCode(this.#rest[0] ?? 0)
      const head = this.#rest.toString('utf8', 1, end)
      const length = kind === '$' ? Number(head) : -1
      const next = end + 2 + (length >= 0 ? length + 2 : 0)
      if (this.#rest.length < next) return
      const body = length >= 0 ? this.#rest.toString('utf8', end + 2, end + 2 + length) : head
      this.#rest = this.#rest.subarray(next)
      const waiting = this.#waiting.shift()
      if (kind === '-') waiting?.fail(new WaybillError('UNAVAILABLE', `Redis refused: ${head}`))
      else waiting?.done(kind === ':' ? Number(head) : kind === '$' && length < 0 ? null : body)
    }
  }
}
