/**
 * The broker of the chaos tests, which keeps nothing but "at least once", and the life of an instance, which may end anywhere.
 */
import { newId } from '../../src/core/event/id.ts'
import { randomInt, type Random } from '../../src/core/service/random.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { Delivery, IncomingMessage, Transport } from '../../src/transport/port/transport.ts'
import type { Fact } from './chaos-history.ts'

export class Life {
  dead = false
  #stepsLeft: number
  readonly #onDeath: () => void

  constructor(steps: number | undefined, onDeath: () => void) {
    this.#stepsLeft = steps ?? Number.POSITIVE_INFINITY
    this.#onDeath = onDeath
  }

  /** Between any two steps the instance may die; from then on nothing it does has an effect. */
  step(): void {
    if (!this.dead && (this.#stepsLeft -= 1) < 0) {
      this.dead = true
      this.#onDeath()
    }
    if (this.dead) throw new Error('Connection terminated: this instance is dead.')
  }
}

interface Copy {
  readonly message: Omit<IncomingMessage, 'deliveryAttempt'>
  attempts: number
  holder: object | undefined
}

/** Any order, one to three copies of each message, and acks that get lost. */
export class ChaosBroker {
  #waiting: Copy[]
  readonly #held = new Set<Copy>()
  readonly #random: Random
  #lostAcks = 10

  constructor(facts: readonly Fact[], random: Random) {
    this.#random = random
    const copies = facts.flatMap((fact) => Array.from({ length: randomInt(random, 1, 3) }, () => toCopy(fact)))
    this.#waiting = copies
      .map((copy) => ({ copy, place: random.next() }))
      .toSorted((a, b) => a.place - b.place)
      .map(({ copy }) => copy)
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0 && this.#held.size === 0
  }

  takeBack(holder: object): void {
    for (const copy of this.#held) if (copy.holder === holder) this.#again(copy)
  }

  transport(holder: { readonly life: Life }, change: (delivery: Delivery) => Delivery): Pick<Transport, 'receive'> {
    return {
      receive: ({ onDelivery }) => {
        const give = (): void => {
          for (let i = 0; i < 7; i += 1) {
            const copy = this.#waiting.shift()
            if (copy === undefined || holder.life.dead) {
              if (copy !== undefined) this.#waiting.unshift(copy)
              return
            }
            copy.holder = holder
            copy.attempts += 1
            this.#held.add(copy)
            onDelivery(change(this.#delivery(copy, holder)))
          }
        }
        const timer = setInterval(give, 1)
        return Promise.resolve({
          close: async () => {
            clearInterval(timer)
            await eventually(() => holder.life.dead || ![...this.#held].some((copy) => copy.holder === holder), {
              timeoutMs: 5_000,
            }).catch(() => undefined)
          },
        })
      },
    }
  }

  #delivery(copy: Copy, holder: { readonly life: Life }): Delivery {
    const isMine = (): boolean => copy.holder === holder && this.#held.has(copy) && !holder.life.dead
    return {
      message: { ...copy.message, deliveryAttempt: copy.attempts },
      lost: new AbortController().signal,
      ack: () => {
        try {
          holder.life.step()
        } catch {
          return Promise.resolve('lost')
        }
        if (!isMine()) return Promise.resolve('lost')
        const lost = this.#lostAcks > 0 && this.#random.next() < 0.1
        if (lost) {
          this.#lostAcks -= 1
          this.#again(copy)
          return Promise.resolve('unconfirmed')
        }
        this.#held.delete(copy)
        return Promise.resolve('confirmed')
      },
      nack: () => {
        if (isMine()) this.#again(copy)
        return Promise.resolve()
      },
    }
  }

  #again(copy: Copy): void {
    this.#held.delete(copy)
    copy.holder = undefined
    this.#waiting.splice(randomInt(this.#random, 0, this.#waiting.length), 0, copy)
  }
}

function toCopy(fact: Fact): Copy {
  const message = {
    messageId: newId(),
    topic: 'note.events',
    orderingKey: fact.aggregateId,
    attributes: {
      event_id: fact.id,
      event_type: fact.type,
      aggregate_type: fact.aggregateType,
      aggregate_id: fact.aggregateId,
      version: String(fact.version),
      schema_version: '1',
      occurred_at: new Date().toISOString(),
    },
    body: Buffer.from(fact.type === 'Erased' ? 'null' : JSON.stringify({ amount: fact.amount })),
    publishedAtMs: 0,
  }
  return { message, attempts: 0, holder: undefined }
}
