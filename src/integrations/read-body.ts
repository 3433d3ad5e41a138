/**
 * The body of a request, or the answer to one that cannot be read: 413 if it is too large, 400 if it is no JSON.
 */
import { problem, type HttpAnswer } from '../command/outcome-status.ts'
import { isWaybillError } from '../core/errors.ts'

export async function readBody(body: () => unknown): Promise<{ readonly value: unknown } | HttpAnswer> {
  try {
    return { value: await body() }
  } catch (error) {
    if (isWaybillError(error, 'TOO_LARGE')) return problem('TOO_LARGE', 413, { detail: error.message, retryable: false })
    return invalid('The body is not JSON.')
  }
}

/** The answer to a request that is not as it must be; the same again would be no better. */
export function invalid(detail: string): HttpAnswer {
  return problem('INVALID_INPUT', 400, { detail, retryable: false })
}
