/**
 * What a real broker does on a bad day, as chances from 0 to 1, drawn from a seed so that a bad day can be repeated.
 *
 * None of it breaks the transport's contract: everything here is what "at least once" and "unknown" allow.
 */
import { resolve, type Check } from '../../core/options.ts'
import type { Random } from '../../core/service/random.ts'

export interface Nastiness {
  /** A request lands twice; the second time now or late. */
  readonly duplicatePublish: number
  /** A request fails and nothing of it lands. */
  readonly failPublish: number
  /** A request, or the beginning of one, lands although it is reported as unavailable. */
  readonly lieOnPublish: number
  /** A request is reported as unavailable and lands later, perhaps after its own repetition. */
  readonly landLate: number
  /** A key is passed over, so that others overtake it. */
  readonly reorderKeys: number
  /** An ack gets lost: it is `unconfirmed`, and the message comes again. */
  readonly dropAck: number
  /** A message comes again although its ack was confirmed. */
  readonly duplicateDelivery: number
  /** A nack brings back also those of its key that were acked after it. */
  readonly redeliverSuccessors: number
  /** A receiver that was closed is handed one more delivery, which is lost already. */
  readonly deliverAfterClose: number
}

/** A bad day: everything happens, and most of the work still gets done. */
export const badDay: Nastiness = {
  duplicatePublish: 0.1,
  failPublish: 0.1,
  lieOnPublish: 0.1,
  landLate: 0.1,
  reorderKeys: 0.3,
  dropAck: 0.1,
  duplicateDelivery: 0.1,
  redeliverSuccessors: 0.5,
  deliverAfterClose: 0.5,
}

export interface Dice {
  /** Whether it happens this time; counted if it does. */
  strikes(what: keyof Nastiness): boolean
  /** How often each has happened. */
  readonly struck: Readonly<Record<keyof Nastiness, number>>
  readonly random: Random
}

/** Dice for `true` (a bad day), for chances of one's own, or for `false` (nothing ever happens). */
export function createDice(nasty: boolean | Partial<Nastiness>, random: Random): Dice {
  const chances = nasty === true ? badDay : resolve<Nastiness>('memory.nasty', peace, nasty === false ? {} : nasty, chanceChecks)
  const struck = { ...peace }
  return {
    strikes: (what) => {
      if (chances[what] === 0 || random.next() >= chances[what]) return false
      struck[what] += 1
      return true
    },
    struck,
    random,
  }
}

const peace: Nastiness = Object.fromEntries(Object.keys(badDay).map((what) => [what, 0])) as unknown as Nastiness

const isChance: Check<number> = (value) => (value >= 0 && value <= 1) || 'must be a chance from 0 to 1'
const chanceChecks = Object.fromEntries(Object.keys(badDay).map((what) => [what, isChance]))
