/**
 * Whether a page of another origin sent a request with its user's cookies, which the browser adds without asking the user.
 *
 *   no Cookie                            taken: nothing in it came by itself. Who is asked for by a header is the caller's affair
 *   Sec-Fetch-Site: same-origin, none    taken: the service's own page, or the user
 *   Sec-Fetch-Site: same-site, cross-site, anything else    only from a listed origin; a sibling of the same site is another origin
 *   no Sec-Fetch-Site, but an Origin     only from a listed origin or the one whose host was asked (older browsers, plain HTTP)
 *   neither                              taken: no browser sends a POST without both
 */
import { problem, type HttpAnswer } from '../command/http-status.ts'
import { WaybillError } from '../core/errors.ts'

type Header = (name: string) => string | undefined

export interface OriginOptions {
  /** Origins whose pages may send requests with cookies, such as `https://app.example.com`; the service's own may. @default [] */
  readonly allowedOrigins?: readonly string[]
}

/** Answers a request of a foreign page with 403; `undefined` for any other. INVALID_OPTION for a list that holds no origins. */
export function refuseForeignPages(
  component: string,
  allowed: readonly string[] = [],
): (header: Header) => HttpAnswer | undefined {
  const isOrigin = (each: unknown): boolean => typeof each === 'string' && URL.canParse(each) && new URL(each).origin === each
  if (!Array.isArray(allowed) || !allowed.every(isOrigin))
    throw new WaybillError(
      'INVALID_OPTION',
      `${component}.allowedOrigins: must be a list of origins, such as https://app.example.com.`,
    )
  const listed = new Set(allowed)
  return (header) => {
    if (header('cookie') === undefined) return undefined
    const origin = header('origin')
    if (origin !== undefined && listed.has(origin)) return undefined
    const site = header('sec-fetch-site')
    const isOwn =
      site === undefined ? origin === undefined || isHost(origin, header('host')) : site === 'same-origin' || site === 'none'
    if (isOwn) return undefined
    const detail = 'A page of another origin sent this with cookies. If it is yours, list its origin in allowedOrigins.'
    return problem('FORBIDDEN', 403, { detail, retryable: false })
  }
}

function isHost(origin: string, host: string | undefined): boolean {
  return URL.canParse(origin) && new URL(origin).host === host?.toLowerCase()
}
