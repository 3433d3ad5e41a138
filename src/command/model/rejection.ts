/**
 * What a command's own code throws to steer its run: a rejection ends it, a lost race starts it again.
 */
import { jsonText } from '../../core/encoding/canonical.ts'
import { WaybillError } from '../../core/errors.ts'

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

/**
 * `throw reject('not-enough-gold', { have: 3, need: 5 })`: nothing of the command takes effect, and the client learns why.
 *
 * The details are what JSON keeps of them, so that every repeat is told the same; a bigint is its digits. What JSON cannot hold is
 * refused here, with INVALID_INPUT.
 */
export function reject(reason: string, details: Readonly<Record<string, unknown>> = {}): Error {
  const text = jsonText(details, {
    what: `reject(${JSON.stringify(reason)}): details`,
    maxBytes: maxDetailsBytes,
    bigint: 'text',
  })
  return new RejectionError({ reason, details: JSON.parse(text ?? '{}') as Rejection['details'] })
}

const maxDetailsBytes = 16_777_216

/** `throw versionConflict(…)` when your own compare-and-set touched no row: the attempt is rolled back and made again. */
export function versionConflict(what: string): WaybillError {
  return new WaybillError('VERSION_CONFLICT', `${what} was changed by somebody else meanwhile.`)
}

/** By name, not `instanceof`: two copies of this package may be installed side by side. */
export function rejectionOf(error: unknown): Rejection | undefined {
  return error instanceof Error && error.name === 'WaybillRejection' ? (error as RejectionError).rejection : undefined
}

/** A rejection that was kept, read field by field; `undefined` if it is none. */
export function readRejection(text: string): Rejection | undefined {
  try {
    const { reason, details } = (JSON.parse(text) ?? {}) as Record<string, unknown>
    const isObject = typeof details === 'object' && details !== null && !Array.isArray(details)
    return typeof reason === 'string' && isObject ? { reason, details: details as Rejection['details'] } : undefined
  } catch {
    return undefined
  }
}

/** A rejection as it is kept for repeats: without its details, where it would be longer than `maxBytes` with them. */
export function keptText({ reason, details }: Rejection, maxBytes: number): { readonly text: string; readonly dropped?: number } {
  const text = JSON.stringify({ reason, details })
  const bytes = Buffer.byteLength(text)
  return bytes <= maxBytes ? { text } : { text: JSON.stringify({ reason, details: {} }), dropped: bytes }
}
