/**
 * The body of a request, or the answer to one that cannot be taken:
 *
 *   413   it has too many bytes, values or levels
 *   415   it is not declared as JSON, or compressed where nobody inflates it. A page of another site can send a form or plain text
 *         with the user's cookies, but no `application/json` without being asked for leave
 *   400   it is no JSON, or reading it would change what it says
 */
import { problem, type HttpAnswer } from '../command/http-status.ts'
import { bodyBudget } from '../core/encoding/budget.ts'
import { isWaybillError } from '../core/errors.ts'
import { assertExact, parseExactJson } from '../core/encoding/exact-json.ts'
import { decodeUtf8 } from '../core/encoding/read-json.ts'

/** The part of a request that its body is read by. */
interface BodyCall {
  readonly header: (name: string) => string | undefined
  /** The parsed body, `undefined` if there is none; throws what it likes if it cannot be parsed. */
  readonly body: () => unknown
}

export async function readBody({ header, body }: BodyCall): Promise<{ readonly value: unknown } | HttpAnswer> {
  let value: unknown
  let fault: HttpAnswer | undefined
  try {
    value = await body()
  } catch (error) {
    if (isWaybillError(error, 'TOO_LARGE')) return problem('TOO_LARGE', 413, { detail: error.message, retryable: false })
    fault = invalid(isWaybillError(error, 'INVALID_INPUT') ? error.message : 'The body is not JSON.')
  }
  const type = header('content-type') ?? ''
  const isSent = Number(header('content-length') ?? 0) > 0 || header('transfer-encoding') !== undefined
  const hasBody = value !== undefined || fault !== undefined || isSent
  if (hasBody && !isJson.test(type)) {
    const detail = `Send the body as JSON, with Content-Type: application/json. ${type === '' ? 'It has none.' : `It is ${type}.`}`
    return problem('UNSUPPORTED_MEDIA_TYPE', 415, { detail, retryable: false })
  }
  const encoding = header('content-encoding') ?? 'identity'
  if (fault === undefined || encoding === 'identity') return fault ?? { value }
  const detail = `Send the body as it is, without Content-Encoding: ${encoding}.`
  return problem('UNSUPPORTED_MEDIA_TYPE', 415, { detail, retryable: false, headers: { 'accept-encoding': 'identity' } })
}

const isJson = /^\s*application\/(?:[\w.+-]+\+)?json\s*(?:;|$)/i

/**
 * The body that a framework has parsed. What that changed shows in part: rounded integers, and names of prototypes. Where the
 * request still has its bytes (`rawBody`: an option of NestJS, plugins of Fastify, `verify` of `express.json()`), all of it shows. How many bytes
 * it may have is the framework's to say; more than `maxBytes / 4` values, or than the default budget, are too many.
 */
export function parsedBody(
  { body, rawBody }: { readonly body?: unknown; readonly rawBody?: unknown },
  maxBytes: number = 0,
): unknown {
  const budget = bodyBudget(maxBytes)
  if (body === undefined || body === null) return undefined
  if (typeof rawBody === 'string') parseExactJson(rawBody, budget)
  else if (rawBody instanceof Uint8Array) parseExactJson(decodeUtf8(rawBody), budget)
  else assertExact(body, budget)
  return body
}

/** The answer to a request that is not as it must be; the same again would be no better. */
export function invalid(detail: string): HttpAnswer {
  return problem('INVALID_INPUT', 400, { detail, retryable: false })
}
