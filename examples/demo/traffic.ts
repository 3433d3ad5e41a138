/**
 * The users: editors who publish videos and read them back, and players. Each repeats a request, under the same key, until it is
 * answered, as a good client does; now and then one asks again although it was answered, as if the answer had been lost.
 *
 * What they were promised is entered into the ledger: an answered change must be there once, and a reader with a token must never
 * be shown less than it stands for.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { createTokens, readTokenHeader, seededRandom, writeTokenHeader } from 'waybill'
import { RunHistory } from './history.ts'
import type { Ledger } from './ledger.ts'
import { createPlayers, playTurn } from './traffic-game.ts'

export interface TrafficOptions {
  readonly videoUrl: string
  readonly catalogUrl: string
  readonly ledger: Ledger
  readonly history: RunHistory
  readonly perSecond: number
}

export interface TrafficCounts {
  /** Commands that were answered. */
  answered: number
  /** Requests that were sent again, because nobody or nothing final answered. */
  repeated: number
  /** Repeats of answered requests, which got the first answer again. */
  replayed: number
  /** Commands that the service's own rules refused. */
  rejected: number
  reads: number
  /** Reads that the owner answered, because the catalog was behind. */
  readsByOwner: number
}

export interface Ask {
  readonly path: string
  readonly key: string
  readonly who: Readonly<Record<string, string>>
  readonly body: unknown
}

export interface Answer {
  readonly status: number
  readonly body: unknown
  readonly headers: Headers
}

const clients = 32
const videoCount = 60
const tokens = createTokens()

export class Traffic {
  perSecond: number
  readonly counts: TrafficCounts = { answered: 0, repeated: 0, replayed: 0, rejected: 0, reads: 0, readsByOwner: 0 }
  readonly #options: TrafficOptions
  readonly #stop = new AbortController()
  readonly #random = seededRandom('demo traffic')
  readonly #run = Math.floor(Date.now() / 1_000).toString(36)
  #requests = 0
  #nextTurnAt = 0
  #working: Promise<unknown> = Promise.resolve()

  constructor(options: TrafficOptions) {
    this.#options = options
    this.perSecond = options.perSecond
  }

  start(): void {
    const ready = createPlayers(this)
    this.#working = Promise.all(Array.from({ length: clients }, async (_none, n) => await this.#live(n, ready)))
  }

  /** Finishes what was asked for, and asks for nothing more. */
  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#working
  }

  chance(probability: number): boolean {
    return this.#random.next() < probability
  }

  pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.#random.next() * from.length)] as T
  }

  newKey(): string {
    return `${this.#run}-${(this.#requests += 1)}`
  }

  /** Sends a request until it is answered for good. */
  async insist(ask: Ask): Promise<Answer> {
    for (;;) {
      const answer = await this.#send(ask).catch(() => undefined)
      const isFinal = answer !== undefined && answer.status < 500 && (answer.body as { retryable?: boolean }).retryable !== true
      if (isFinal) {
        this.counts.answered += 1
        if (answer.status === 422) this.counts.rejected += 1
        return answer
      }
      this.counts.repeated += 1
      await delay(50 + this.#random.next() * 150)
    }
  }

  async #live(n: number, playersReady: Promise<void>): Promise<void> {
    await playersReady
    for (;;) {
      await this.#turn()
      if (this.#stop.signal.aborted) return
      if (n % 4 === 0) await playTurn(this)
      else await this.#edit(`editor-${n}`)
    }
  }

  /** Turns are spread evenly over time, for all clients together; what an outage delayed is not made up for. */
  async #turn(): Promise<void> {
    const now = performance.now()
    this.#nextTurnAt = Math.max(this.#nextTurnAt, now - 100) + 1_000 / this.perSecond
    await delay(Math.max(0, this.#nextTurnAt - now), undefined, { signal: this.#stop.signal }).catch(() => {})
  }

  async #edit(editor: string): Promise<void> {
    const { ledger, history } = this.#options
    const id = `video-${Math.floor(this.#random.next() * videoCount)}`
    const key = this.newKey()
    const ask: Ask = { path: `/videos/${id}`, key, who: { 'x-editor': editor }, body: { title: `Take ${this.#requests}` } }
    ledger.ask(key)
    history.record({ op: 'invoke', call: key, request: key })
    const answer = await this.insist(ask)
    if (answer.status !== 200) return ledger.violate('lost', `request ${key} was answered with ${answer.status}`)
    ledger.answer(key)
    const response = JSON.stringify(answer.body)
    history.record({ op: 'answer', call: key, request: key, outcome: 'ok', response })
    if (this.chance(0.03)) await this.#askAgain(ask)
    if (this.chance(0.3)) await this.#readBack(id, readTokenHeader(answer.headers))
  }

  async #askAgain(ask: Ask): Promise<void> {
    const call = `${ask.key} again`
    this.#options.history.record({ op: 'invoke', call, request: ask.key })
    const again = await this.insist(ask)
    const response = JSON.stringify(again.body)
    this.#options.history.record({ op: 'answer', call, request: ask.key, outcome: 'ok', response })
    if (again.headers.get('idempotent-replayed') === 'true') this.counts.replayed += 1
    else this.#options.ledger.violate('doubled', `request ${ask.key} was not recognised when it came again`)
  }

  async #readBack(id: string, token: string | undefined): Promise<void> {
    const response = await fetch(`${this.#options.catalogUrl}/videos/${id}`, {
      headers: writeTokenHeader(token),
      signal: AbortSignal.timeout(5_000),
    }).catch(() => undefined)
    const row = (await response?.json().catch(() => undefined)) as { version?: string } | undefined
    // A catalog that is down answers nobody, or breaks off; whoever is answered must be shown what it knows.
    if (response?.ok !== true || row === undefined) return
    this.counts.reads += 1
    const by = response.headers.get('served-by') === 'owner' ? 'owner' : 'projection'
    if (by === 'owner') this.counts.readsByOwner += 1
    const atLeast = token === undefined ? 0 : Number(tokens.decode(token).version)
    const served = Number(row.version ?? 0)
    this.#options.history.record({ op: 'read', aggregate: RunHistory.of({ type: 'video', id }), atLeast, served, by })
    if (served < atLeast) this.#options.ledger.violate('stale', `${id}: a reader who knew version ${atLeast} was shown ${served}`)
  }

  async #send({ path, key, who, body }: Ask): Promise<Answer> {
    const headers = { 'content-type': 'application/json', 'idempotency-key': `"${key}"`, ...who }
    const response = await fetch(`${this.#options.videoUrl}${path}`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(5_000),
    })
    return { status: response.status, headers: response.headers, body: await response.json() }
  }
}
