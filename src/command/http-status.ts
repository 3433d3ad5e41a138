/**
 * What an outcome is to a client of HTTP, gRPC or Connect: one table, on top of the meanings of our error codes.
 *
 * HTTP follows the IETF draft of the Idempotency-Key header (400 missing, 409 in flight, 422 reused) and RFC 9457; gRPC carries
 * `google.rpc.RetryInfo` where a repeat may help, and `google.rpc.ErrorInfo` with our code.
 */
import { errorMeanings, grpcCodes, type GrpcCode } from '../core/errors.ts'
import { tokenHeader } from '../core/event/token.ts'
import type { CommandErrorCode, Failed, Outcome, Rejected } from './model/outcome.ts'

/** An answer of HTTP without its transport. */
export interface HttpAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** JSON; `undefined` for an answer without a body. */
  readonly body: unknown
}

/** An answer of gRPC or Connect without its transport. */
export interface RpcStatus {
  readonly code: GrpcCode
  /** The number on the wire, the same for gRPC and Connect. */
  readonly number: number
  readonly message: string
  readonly reason: string
  readonly retryAfterMs: number | undefined
  readonly metadata: Readonly<Record<string, string>>
}

export { tokenHeader }

/** The codes that a problem can have: those of commands, and those of the endpoints themselves. */
export type ProblemCode =
  | CommandErrorCode
  | 'REJECTED'
  | 'UNAUTHENTICATED'
  | 'FORBIDDEN'
  | 'NOT_FOUND'
  | 'TOO_LARGE'
  | 'UNSUPPORTED_MEDIA_TYPE'
  | 'FACT_CONFLICT'

const titles: Readonly<Record<ProblemCode, string>> = {
  INVALID_INPUT: 'The request is not valid',
  REQUEST_ID_MISSING: 'Idempotency-Key is missing',
  IN_PROGRESS: 'A request with this Idempotency-Key is in progress',
  ALREADY_COMMITTED: 'The request was completed before, and its response was not kept',
  KEY_REUSED: 'Idempotency-Key is already used for another request',
  VERSION_CONFLICT: 'Others kept changing the same thing',
  PRECONDITION_FAILED: 'The state has changed since it was read',
  UNAVAILABLE: 'The service cannot do this now',
  REJECTED: 'The request was rejected',
  UNAUTHENTICATED: 'Nobody is signed in',
  FORBIDDEN: 'This may not be sent from there',
  NOT_FOUND: 'There is nothing here',
  TOO_LARGE: 'The request is too large',
  UNSUPPORTED_MEDIA_TYPE: 'The body is not sent as JSON',
  FACT_CONFLICT: 'The business key is taken by a fact with other content',
  OVERLOADED: 'Too much is under way',
  ABORTED: 'The request was given up',
}

/** HTTP gives these no body, and whoever writes one gets an error: after the command has committed. */
const bodiless: ReadonlySet<number> = new Set([204, 205, 304])

/** The answer to an outcome; `status` is that of success. */
export function httpAnswer(outcome: Outcome, { status = 200 }: { readonly status?: number } = {}): HttpAnswer {
  if (outcome.status === 'rejected') return rejectedAnswer(outcome)
  if (outcome.status === 'failed') return failedAnswer(outcome)
  const { token } = outcome
  const response = bodiless.has(status) ? undefined : outcome.response
  const headers = {
    ...(response === undefined ? {} : { 'content-type': 'application/json' }),
    ...(token === undefined ? {} : { [tokenHeader]: token }),
    ...(outcome.status === 'replayed' ? { 'idempotent-replayed': 'true' } : {}),
  }
  return { status: response === undefined && status === 200 ? 204 : status, headers, body: response }
}

/** A problem of RFC 9457. */
export function problem(
  code: ProblemCode,
  status: number,
  more: { readonly title?: string; readonly detail?: string; readonly headers?: Readonly<Record<string, string>> } & Record<
    string,
    unknown
  >,
): HttpAnswer {
  const { title = titles[code], detail, headers = {}, ...rest } = more
  const type = `urn:waybill:problem:${code.toLowerCase().replaceAll('_', '-')}`
  return {
    status,
    headers: { 'content-type': 'application/problem+json', ...headers },
    body: { type, title, status, detail, code, ...rest },
  }
}

/** The status to end a call with; `undefined` for a success. */
export function rpcStatus(outcome: Outcome): RpcStatus | undefined {
  if (outcome.status === 'failed') {
    const { code, message, retryAfterMs, token } = outcome
    const { grpc } = errorMeanings[code]
    const metadata = token === undefined ? {} : { token }
    return { code: grpc, number: grpcCodes[grpc], message, reason: code, retryAfterMs, metadata }
  }
  if (outcome.status !== 'rejected') return undefined
  return {
    code: 'FAILED_PRECONDITION',
    number: grpcCodes.FAILED_PRECONDITION,
    message: `${titles.REJECTED}: ${outcome.reason}.`,
    reason: outcome.reason,
    retryAfterMs: undefined,
    metadata: Object.fromEntries(Object.entries(outcome.details).map(([key, value]) => [key, asText(value)])),
  }
}

function rejectedAnswer({ reason, details, replayed }: Rejected): HttpAnswer {
  const headers = replayed ? { 'idempotent-replayed': 'true' } : {}
  return problem('REJECTED', 422, { headers, reason, details })
}

function failedAnswer({ code, message, retryable, retryAfterMs, token }: Failed): HttpAnswer {
  const headers = {
    ...(retryAfterMs === undefined ? {} : { 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) }),
    ...(token === undefined ? {} : { [tokenHeader]: token }),
  }
  return problem(code, errorMeanings[code].http, {
    detail: message,
    headers,
    retryable,
    ...(token === undefined ? {} : { token }),
  })
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
}
