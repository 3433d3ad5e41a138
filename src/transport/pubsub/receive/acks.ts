/**
 * Tells Pub/Sub what became of deliveries: acknowledgements and new lease deadlines, gathered into few requests.
 *
 * Each id gets an outcome of its own. A request that failed for a while is repeated, eight times in all; with exactly-once
 * delivery the service names the ids that failed and why, and only those are repeated or given up. An id whose fate stays
 * unknown is `unconfirmed`: its message may come again.
 */
import { backoffMs } from '../../../core/service/backoff.ts'
import type { Clock } from '../../../core/service/clock.ts'
import type { Random } from '../../../core/service/random.ts'
import { failureDetails } from '../client/connection.ts'
import { isPermanent } from '../client/errors.ts'
import type { AckOutcome } from '../../port/transport.ts'

export interface SettlerOptions {
  /** Sends one request to the subscription. */
  readonly call: (method: 'acknowledge' | 'modifyAckDeadline', request: object, signal: AbortSignal) => Promise<unknown>
  readonly clock: Clock
  readonly random: Random
}

interface Entry {
  readonly ackId: string
  /** The new deadline; `undefined` acknowledges. */
  readonly seconds: number | undefined
  readonly done: (outcome: AckOutcome) => void
  attempts: number
}

const maxRequestIds = 1_000
const maxAttempts = 8
const backoff = { firstMs: 50, maxMs: 5_000 }

export class Settler {
  readonly #options: SettlerOptions
  #queue: Entry[] = []
  #isScheduled = false
  #unsettled = 0
  #whenIdle: (() => void)[] = []
  readonly #givenUp = new AbortController()

  constructor(options: SettlerOptions) {
    this.#options = options
  }

  /** Never rejects. */
  ack(ackId: string): Promise<AckOutcome> {
    return this.#add(ackId, undefined)
  }

  /** Gives a lease `seconds` from now; zero gives the message back. Never rejects. */
  modify(ackId: string, seconds: number): Promise<AckOutcome> {
    return this.#add(ackId, seconds)
  }

  /** Resolves when nothing is under way. */
  async idle(): Promise<void> {
    if (this.#unsettled > 0) await new Promise<void>((done) => this.#whenIdle.push(done))
  }

  /** Waits for no answer any more: what is under way, and whatever comes, is `unconfirmed`. */
  giveUp(): void {
    this.#givenUp.abort()
  }

  #add(ackId: string, seconds: number | undefined): Promise<AckOutcome> {
    this.#unsettled += 1
    return new Promise((resolve) => {
      const done = (outcome: AckOutcome): void => {
        this.#unsettled -= 1
        resolve(outcome)
        if (this.#unsettled === 0) for (const wake of this.#whenIdle.splice(0)) wake()
      }
      this.#enqueue({ ackId, seconds, done, attempts: 0 })
    })
  }

  #enqueue(entry: Entry): void {
    this.#queue.push(entry)
    if (this.#isScheduled) return
    this.#isScheduled = true
    // After what the loop has read already: acknowledgements of one batch of work leave in one request.
    setImmediate(() => this.#flush())
  }

  #flush(): void {
    this.#isScheduled = false
    const groups = Map.groupBy(this.#queue.splice(0), ({ seconds }) => seconds)
    for (const [seconds, entries] of groups) {
      for (let i = 0; i < entries.length; i += maxRequestIds) void this.#send(seconds, entries.slice(i, i + maxRequestIds))
    }
  }

  async #send(seconds: number | undefined, entries: readonly Entry[]): Promise<void> {
    const ackIds = entries.map(({ ackId }) => ackId)
    const { signal } = this.#givenUp
    try {
      if (seconds === undefined) await this.#options.call('acknowledge', { ackIds }, signal)
      else await this.#options.call('modifyAckDeadline', { ackIds, ackDeadlineSeconds: seconds }, signal)
      for (const entry of entries) entry.done('confirmed')
    } catch (error) {
      await this.#settleFailed(entries, error)
    }
  }

  async #settleFailed(entries: readonly Entry[], error: unknown): Promise<void> {
    const details = await failureDetails(error).catch(() => new Map<string, string>())
    const isNaming = entries.some(({ ackId }) => details.has(ackId))
    const again: Entry[] = []
    for (const entry of entries) {
      const verdict = judge(details.get(entry.ackId), isNaming, error)
      entry.attempts += 1
      if (verdict === 'retry' && entry.attempts < maxAttempts && !this.#givenUp.signal.aborted) again.push(entry)
      else entry.done(verdict === 'retry' ? 'unconfirmed' : verdict)
    }
    const [first] = again
    if (first === undefined) return
    await this.#options.clock.sleep(backoffMs(backoff, first.attempts, this.#options.random), this.#givenUp.signal)
    for (const entry of again) this.#enqueue(entry)
  }
}

function judge(detail: string | undefined, isNaming: boolean, error: unknown): AckOutcome | 'retry' {
  if (detail?.startsWith('TRANSIENT_') === true) return 'retry'
  if (detail !== undefined) return 'lost'
  // Where the service names those that failed, the others succeeded; where it names none, the whole call failed.
  if (isNaming) return 'confirmed'
  return isPermanent(error) ? 'unconfirmed' : 'retry'
}
