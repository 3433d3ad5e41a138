/**
 * Every answer of the dashboard, with the headers that keep a page of operators' buttons to itself: no script but its own, no
 * frame around it, nothing kept by caches, and no guessing of content types.
 */
import { errorMessage, isWaybillError, meaningOf, WaybillError, type ErrorCode } from '../core/errors.ts'
import { redactSecrets } from '../core/redact.ts'
import { isRefusedValue } from '../postgres/query/sql-state.ts'

const securityHeaders: Readonly<Record<string, string>> = {
  'content-security-policy': "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cache-control': 'no-store',
}

export function answerJson(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): Response {
  return answer(status, JSON.stringify(body), { 'content-type': 'application/json; charset=utf-8', ...headers })
}

export function answer(
  status: number,
  body: string | Uint8Array<ArrayBuffer> | null,
  headers: Readonly<Record<string, string>>,
): Response {
  return new Response(body, { status, headers: { ...securityHeaders, ...headers } })
}

/** What went wrong, as people and pages see it: never with a password, and never with a stack. */
export interface ShownError {
  readonly code: ErrorCode
  readonly message: string
}

export function shownError(error: unknown): ShownError {
  if (isWaybillError(error)) return { code: error.code, message: redactSecrets(error.message) }
  if (isRefusedValue(error))
    return { code: 'INVALID_INPUT', message: `The database refuses that: ${redactSecrets(errorMessage(error))}.` }
  if (error instanceof TypeError || error instanceof RangeError)
    return { code: 'INTERNAL', message: 'The dashboard has failed. That is a defect: please report it.' }
  return { code: 'UNAVAILABLE', message: `The database could not be asked: ${redactSecrets(errorMessage(error))}.` }
}

/** A failure as an answer. What is neither an error of ours nor a defect is the database's, and may pass. */
export function answerError(error: unknown): Response {
  const shown = shownError(error)
  return answerJson(meaningOf(shown.code).http, { error: shown })
}

export function forbidden(message: string): WaybillError {
  return new WaybillError('FORBIDDEN', message)
}
