/**
 * When a fault proxy breaks a connection, and the proof that it did.
 *
 * A rule fires once unless told otherwise, on whichever connection its moment comes first. Firings are counted by
 * name and outlive the rule.
 */
import { WaybillError } from '../../core/errors.ts'
import type { Direction } from './fault-proxy.ts'

/** The moment: a message that fits, a byte of the connection, or a number of messages on it. */
export type FaultMoment =
  /** Before the first message that fits. */
  | { readonly match: (message: Buffer) => boolean }
  /** When so many bytes of the connection have been forwarded. */
  | { readonly byte: number }
  /** When so many messages of the connection have been forwarded. */
  | { readonly messages: number }

/**
 * What happens then:
 * - `cut`: both sockets are closed; what comes next is not forwarded.
 * - `cut-after`: the message is forwarded, and both sockets are closed at once.
 * - `cut-reply`: the message is forwarded, and both sockets are closed when the answer arrives, which is swallowed.
 * - `stall`: nothing is forwarded any more in this direction of this connection, and nobody is told.
 */
export type FaultAction = 'cut' | 'cut-after' | 'cut-reply' | 'stall'

export interface FaultRule {
  readonly name: string
  readonly direction: Direction
  readonly on: FaultMoment
  readonly action: FaultAction
  /** How often it fires. @default 1 */
  readonly times?: number
}

/** A rule whose moment has come: forward so many bytes of the message, then act. */
export interface DueRule {
  readonly rule: FaultRule
  readonly forwardBytes: number
}

/** How far a direction of a connection has come. */
export interface Progress {
  readonly bytes: number
  readonly messages: number
}

interface Tally {
  count: number
  readonly first: PromiseWithResolvers<void>
}

/** The armed rules of a proxy and their counts. */
export class FaultRules {
  readonly #armed = new Map<string, { rule: FaultRule; left: number }>()
  readonly #tallies = new Map<string, Tally>()

  arm(rule: FaultRule): void {
    if (this.#armed.has(rule.name)) {
      throw new WaybillError(
        'INVALID_OPTION',
        `A fault rule named "${rule.name}" is armed already. Disarm it or choose another name.`,
      )
    }
    this.#armed.set(rule.name, { rule, left: rule.times ?? 1 })
  }

  disarm(name: string): void {
    this.#armed.delete(name)
  }

  fired(name: string): Promise<void> {
    return this.#tally(name).first.promise
  }

  firings(name: string): number {
    return this.#tally(name).count
  }

  /** Finds the rule that this message sets off and uses up one of its times. */
  take(direction: Direction, message: Buffer, before: Progress): DueRule | undefined {
    for (const [name, entry] of this.#armed) {
      if (entry.rule.direction !== direction) continue
      const forwardBytes = bytesToForward(entry.rule, message, before)
      if (forwardBytes === undefined) continue
      entry.left -= 1
      if (entry.left === 0) this.#armed.delete(name)
      return { rule: entry.rule, forwardBytes }
    }
    return undefined
  }

  count(name: string): void {
    const tally = this.#tally(name)
    tally.count += 1
    tally.first.resolve()
  }

  #tally(name: string): Tally {
    const tally = this.#tallies.get(name) ?? { count: 0, first: Promise.withResolvers<void>() }
    this.#tallies.set(name, tally)
    return tally
  }
}

/** How much of the message still passes, or undefined when the rule's moment has not come. */
function bytesToForward({ on, action }: FaultRule, message: Buffer, before: Progress): number | undefined {
  if ('byte' in on) {
    const left = on.byte - before.bytes
    return left >= 0 && left <= message.length ? left : undefined
  }
  if ('messages' in on) return before.messages + 1 === on.messages ? message.length : undefined
  if (!on.match(message)) return undefined
  return action === 'cut' || action === 'stall' ? 0 : message.length
}
