/**
 * Whether a request to change something comes from the page itself, and not from another site that is open in the same browser.
 *
 * Two things are asked for, each of which would do: the origin that the browser states, and a seal that only the page can read. The
 * seal is a random cookie that the overview repeats in its body; another site can neither read that body nor set the header. So no
 * secret is shared by the processes behind a load balancer.
 */
import { randomBytes } from 'node:crypto'
import { isEqualSecret } from '../core/equal-secret.ts'
import { cookieOf } from './cookies.ts'
import { forbidden } from './answers.ts'

const cookieName = 'waybill_seal'
const sealHeader = 'x-waybill-seal'
const wellFormed = /^[\w-]{43}$/

/** The browser's seal, and the header that makes it remember a new one. */
export function sealFor(
  request: Request,
  { path, origin }: { readonly path: string; readonly origin: string },
): { readonly seal: string; readonly headers: Record<string, string> } {
  const known = cookieOf(request, cookieName)
  if (known !== undefined && wellFormed.test(known)) return { seal: known, headers: {} }
  const seal = randomBytes(32).toString('base64url')
  const secure = (origin === 'request' ? request.url : origin).startsWith('https:') ? '; Secure' : ''
  return { seal, headers: { 'set-cookie': `${cookieName}=${seal}; Path=${path}; HttpOnly; SameSite=Strict${secure}` } }
}

/** FORBIDDEN unless the page sent it. Its whole origin counts, the scheme too; the host that was asked for, only where told to. */
export function assertSamePage(request: Request, origin: string): void {
  const site = request.headers.get('sec-fetch-site')
  const own = origin === 'request' ? new URL(request.url).origin : origin
  if (request.headers.get('origin') !== own || (site !== null && site !== 'same-origin'))
    throw forbidden(
      `Actions are taken from the page itself only, at ${own}. If that is not its address, tell the dashboard its origin.`,
    )
  const [sent, kept] = [request.headers.get(sealHeader) ?? '', cookieOf(request, cookieName) ?? '']
  if (!wellFormed.test(kept) || !isEqualSecret(sent, kept)) throw forbidden('The page is out of date. Load it again.')
}
