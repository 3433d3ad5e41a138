/**
 * Settles the deliveries of one receiver: what comes while one statement is under way goes together in the next.
 *
 * An ack that could not be stored is `unconfirmed`: the message comes again. A nack that could not be stored loses only
 * its delay. Neither ever rejects. One that was given up and lands all the same does no harm, for it is fenced by the lane's
 * tenure: what was acked is gone, whoever has it again, and what was nacked rests before it comes the next time.
 */
import { execute, rows, type Queryable } from '../../postgres/query/database.ts'
import type { AckOutcome, ReceiveOptions } from '../port/transport.ts'
import type { HeldDelivery, InHand, Settle } from './held-deliveries.ts'
import { ackDeliveries, longestRestMs, nackDeliveries, type TransportTables } from './transport.sql.ts'

export interface SettlementsDeps {
  /** Answers in time or fails: while one statement is under way, the others wait. */
  readonly db: Queryable
  readonly tables: TransportTables
  readonly subscription: number
  readonly inHand: InHand
  readonly onError: (error: Error) => void
  /** Told after each statement: after these delays messages can be fetched again. */
  readonly onSettled: (backAfterMs: readonly number[]) => void
}

interface Ack {
  readonly held: HeldDelivery
  readonly done: (outcome: AckOutcome) => void
}

interface Nack {
  readonly held: HeldDelivery
  readonly delayMs: number
  readonly done: () => void
}

/** Deliveries per statement. */
const batchSize = 5_000

export class Settlements implements Settle {
  readonly #deps: SettlementsDeps
  readonly #acks: Ack[] = []
  readonly #nacks: Nack[] = []
  #flushing = false
  /** What was settled and is not stored, and the bytes of that. */
  #unstored = 0
  #unstoredBytes = 0

  constructor(deps: SettlementsDeps) {
    this.#deps = deps
  }

  /**
   * Whether so much waits to be stored that nothing more is to be fetched: a database that does not answer must not fill the memory.
   * Messages have room in the statement under way and the next, so that a fast consumer does not wait for each.
   */
  isBehind({ maxMessages, maxBytes }: Pick<ReceiveOptions, 'maxMessages' | 'maxBytes'>): boolean {
    return this.#unstored >= Math.max(maxMessages, 2 * batchSize) || this.#unstoredBytes >= maxBytes
  }

  ack(held: HeldDelivery): Promise<AckOutcome> {
    this.#deps.inHand.acked(held)
    this.#count(held)
    return new Promise((done) => {
      this.#acks.push({ held, done })
      this.#schedule()
    })
  }

  nack(held: HeldDelivery, delayMs: number): Promise<void> {
    this.#deps.inHand.nacked(held)
    this.#count(held)
    return new Promise((done) => {
      this.#nacks.push({ held, delayMs: Math.min(delayMs, longestRestMs), done })
      this.#schedule()
    })
  }

  #schedule(): void {
    if (this.#flushing) return
    this.#flushing = true
    setImmediate(() => void this.#flush())
  }

  async #flush(): Promise<void> {
    while (this.#acks.length > 0 || this.#nacks.length > 0) {
      // Nacks first: until they are stored their keys stand still.
      if (this.#nacks.length > 0) await this.#storeNacks(this.#nacks.splice(0, batchSize))
      if (this.#acks.length > 0) await this.#storeAcks(this.#acks.splice(0, batchSize))
    }
    this.#flushing = false
  }

  async #storeAcks(acks: readonly Ack[]): Promise<void> {
    const { db, tables, subscription, inHand, onSettled } = this.#deps
    let gone: ReadonlySet<string> | undefined
    try {
      const deleted = await rows(
        db,
        ackDeliveries(
          tables,
          subscription,
          acks.map(({ held }) => held.at),
        ),
      )
      gone = new Set(deleted.map(({ seq }) => seq))
    } catch (error) {
      this.#report(error)
    }
    for (const { held, done } of acks) {
      inHand.forget(held)
      this.#discount(held)
      if (gone === undefined) done('unconfirmed')
      else done(gone.has(held.at.seq) ? 'confirmed' : 'lost')
    }
    onSettled(gone === undefined ? [0] : [])
  }

  async #storeNacks(nacks: readonly Nack[]): Promise<void> {
    const { db, tables, subscription, inHand, onSettled } = this.#deps
    try {
      await execute(
        db,
        nackDeliveries(
          tables,
          subscription,
          nacks.map(({ held, delayMs }) => ({ ...held.at, delayMs })),
        ),
      )
    } catch (error) {
      this.#report(error)
    }
    for (const { held, done } of nacks) {
      inHand.nackStored(held)
      this.#discount(held)
      done()
    }
    onSettled([...new Set([0, ...nacks.map(({ delayMs }) => delayMs)])])
  }

  #count({ at }: HeldDelivery): void {
    this.#unstored += 1
    this.#unstoredBytes += at.bytes
  }

  #discount({ at }: HeldDelivery): void {
    this.#unstored -= 1
    this.#unstoredBytes -= at.bytes
  }

  #report(error: unknown): void {
    this.#deps.onError(error instanceof Error ? error : new Error(String(error)))
  }
}
