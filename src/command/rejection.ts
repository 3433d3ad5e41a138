/**
 * What a command's own code throws to steer its run: a rejection ends it, a lost race starts it again.
 */
import { WaybillError } from '../core/errors.ts'

/** Why a command was refused by its own rules. */
export interface Rejection {
  /** A short name that clients switch on: `not-enough-gold`. */
  readonly reason: string
  /** What JSON can hold, for the client. Never secrets. */
  readonly details: Readonly<Record<string, unknown>>
}

class RejectionError extends Error {
  override readonly name: string = 'WaybillRejection'
  readonly rejection: Rejection

  constructor(rejection: Rejection) {
    super(`The command was rejected: ${rejection.reason}.`)
    this.rejection = rejection
  }
}

/** `throw reject('not-enough-gold', { have: 3, need: 5 })`: nothing of the command takes effect, and the client learns why. */
export function reject(reason: string, details: Readonly<Record<string, unknown>> = {}): Error {
  return new RejectionError({ reason, details })
}

/** `throw versionConflict(…)` when your own compare-and-set touched no row: the attempt is rolled back and made again. */
export function versionConflict(what: string): WaybillError {
  return new WaybillError('VERSION_CONFLICT', `${what} was changed by somebody else meanwhile.`)
}

/** By name, not `instanceof`: two copies of this package may be installed side by side. */
export function rejectionOf(error: unknown): Rejection | undefined {
  return error instanceof Error && error.name === 'WaybillRejection' ? (error as RejectionError).rejection : undefined
}
