/**
 * The main thread's end of the network: opens proxies, cuts all of them, heals them.
 */
import { Worker } from 'node:worker_threads'
import type { NetworkAnswer, NetworkRequest } from './processes/network.ts'

export class Network {
  readonly #worker: Worker
  readonly #waiting = new Map<number, (value: number) => void>()
  #requests = 0
  /** Whether anything goes through it. */
  isUsed = false

  constructor(fromSource: string) {
    this.#worker = new Worker(new URL('processes/network.ts', import.meta.url), { execArgv: [`--import=${fromSource}`] })
    this.#worker.on('message', ({ number, value }: NetworkAnswer) => {
      this.#waiting.get(number)?.(value)
      this.#waiting.delete(number)
    })
  }

  /** Puts a proxy in front of a port of this machine; returns its port. */
  async open(port: number): Promise<number> {
    this.isUsed = true
    return await this.#ask({ op: 'open', host: '127.0.0.1', port })
  }

  /** Ends every connection and refuses new ones; returns how many there were. */
  async cut(): Promise<number> {
    return await this.#ask({ op: 'cut' })
  }

  async heal(): Promise<void> {
    await this.#ask({ op: 'heal' })
  }

  async stop(): Promise<void> {
    await this.#worker.terminate()
  }

  #ask(request: { op: 'open'; host: string; port: number } | { op: 'cut' | 'heal' }): Promise<number> {
    const number = (this.#requests += 1)
    const answered = new Promise<number>((done) => this.#waiting.set(number, done))
    this.#worker.postMessage({ ...request, number } satisfies NetworkRequest)
    return answered
  }
}
