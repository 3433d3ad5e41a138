/**
 * What a gRPC status of Pub/Sub means to us. No error of Google's client leaves the transport as it came.
 *
 * A rejection is the message's own fault and stays so: INVALID_ARGUMENT, which Pub/Sub answers to what is too large, malformed
 * or does not fit the topic's schema. A missing topic or permission, or a topic that cannot be used as it is (its encryption key
 * is out of reach, the region is not one of its own), is repaired by an operator, and its messages are published then.
 * Everything else is an outage.
 */
import { errorMessage, isWaybillError, WaybillError, type ErrorCode } from '../../../core/errors.ts'

export const status = {
  ok: 0,
  cancelled: 1,
  unknown: 2,
  invalidArgument: 3,
  deadlineExceeded: 4,
  notFound: 5,
  alreadyExists: 6,
  permissionDenied: 7,
  resourceExhausted: 8,
  failedPrecondition: 9,
  aborted: 10,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  unauthenticated: 16,
} as const

const meanings: Readonly<Record<number, readonly [ErrorCode, string]>> = {
  [status.cancelled]: ['ABORTED', 'It was given up before an answer came.'],
  [status.invalidArgument]: ['REJECTED', 'Pub/Sub refuses it as it is.'],
  [status.deadlineExceeded]: ['TIMEOUT', 'No answer came in time.'],
  [status.notFound]: ['NOT_FOUND', 'Create it: waybill provision --apply.'],
  [status.permissionDenied]: ['FORBIDDEN', 'Grant the role that `waybill provision --plan` shows.'],
  [status.unauthenticated]: ['FORBIDDEN', 'Check the credentials.'],
  [status.resourceExhausted]: ['OVERLOADED', 'A quota is used up, or Pub/Sub asks to slow down.'],
  [status.failedPrecondition]: ['REFUSED', 'The resource is not in a state that allows it.'],
}

/** The status code of an error of the client, or `undefined` if it is no such error. */
export function statusOf(error: unknown): number | undefined {
  const code = (error as { readonly code?: unknown } | null)?.code
  return typeof code === 'number' ? code : undefined
}

/** Whether Pub/Sub, or a limit of it, refused what is in the request, rather than that it failed to be taken. */
export function isRejection(error: unknown): boolean {
  return isWaybillError(error, 'REJECTED') || isWaybillError(error, 'TOO_LARGE')
}

/**
 * Whether the topic is missing, closed to this client, or in no state to take anything. Bad credentials are no matter of one topic.
 * A project without billing is not, either, and answers like a topic without its key: its messages wait for their topics then.
 */
export function isUnroutable(error: unknown): boolean {
  if (isWaybillError(error, 'NOT_FOUND')) return true
  const code = isWaybillError(error) ? statusOf(error.cause) : undefined
  return code === status.permissionDenied || code === status.failedPrecondition
}

/** Whether trying the same again later is of no use before somebody has changed something. */
export function isPermanent(error: unknown): boolean {
  const code = statusOf(error)
  return (
    isWaybillError(error, 'MISSING_PACKAGE') ||
    code === status.invalidArgument ||
    code === status.notFound ||
    code === status.permissionDenied ||
    code === status.unauthenticated ||
    code === status.failedPrecondition
  )
}

/** Our error for a failed call; `what` says which: "publish to projects/p/topics/t". */
export function pubsubError(error: unknown, what: string): WaybillError {
  if (error instanceof WaybillError) return error
  const [code, advice] = meanings[statusOf(error) ?? -1] ?? (['UNAVAILABLE', ''] as const)
  const said = (error as { readonly details?: unknown } | null)?.details
  const text = typeof said === 'string' && said !== '' ? said : errorMessage(error)
  return new WaybillError(code, `Pub/Sub, ${what}: ${text.slice(0, 500)} ${advice}`.trimEnd(), { cause: error })
}
