/**
 * A page for operators: what `waybill status`, `trace`, `doctor` and `dlq` say, of several services at once, and the buttons that
 * pause, resume, redrive, skip and discard.
 *
 *   const origin = 'https://ops.example.com'
 *   const dashboard = createDashboard({ services: [{ name: 'shop', db }], authorize: (request) => signedIn(request), origin, path: '/ops' })
 *   app.all('/ops/*', (c) => dashboard.handler(c.req.raw))     // Hono, Bun, Deno: Request → Response
 *   app.use('/ops', dashboard.listener)                         // Express; or a listener of node:http
 *
 * Only viewers that `authorize` names see anything. Changes need a viewer who may act, the page's own origin and its seal; each
 * is in the audit log under the viewer's name. It keeps nothing: any number of processes may serve it.
 */
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'

import { readJson } from '../core/encoding/read-json.ts'
import { WaybillError } from '../core/errors.ts'
import { act } from './actions.ts'
import { answer, answerError, answerJson, forbidden } from './answers.ts'
import { resolveOptions, type DashboardOptions, type DashboardSettings, type Viewer } from './dashboard-options.ts'
import { createListener, type Listener } from './listener.ts'
import { looks, overview, type Glance } from './looks.ts'
import { isEqualSecret } from '../core/equal-secret.ts'

export type { DashboardOptions, DashboardService, Viewer } from './dashboard-options.ts'
export type { Listener } from './listener.ts'

export interface Dashboard {
  /** Answers everything under `path`, Fetch style. It rejects only with what `authorize` throws, which no viewer may read. */
  readonly handler: (request: Request) => Promise<Response>
  /** The same for `node:http` and Express. */
  readonly listener: Listener
}

/** The body of an action is refused above this. */
const maxActionBytes = 65_536

export function createDashboard(options: DashboardOptions): Dashboard {
  const settings = resolveOptions(options)
  const glances = together(() => overview(settings))
  const handler = async (request: Request): Promise<Response> => {
    const given = await settings.authorize(request)
    if (given instanceof Response) return given
    try {
      return await route({ settings, glances, request, viewer: viewerOf(given) })
    } catch (error) {
      return answerError(error)
    }
  }
  return { handler, listener: createListener(handler) }
}

/** Only who has a name is a viewer: a program that was not compiled may return `false`, `null`, or a yes without a name. */
function viewerOf(given: Viewer | undefined): Viewer {
  if (typeof given === 'object' && given !== null && typeof given.name === 'string' && given.name !== '') return given
  throw forbidden('You may not look at this dashboard.')
}

interface Asked {
  readonly settings: DashboardSettings
  readonly glances: () => Promise<readonly Glance[]>
  readonly request: Request
  readonly viewer: Viewer
}

async function route(asked: Asked): Promise<Response> {
  const { settings, request } = asked
  const { pathname, search } = new URL(request.url)
  const root = settings.path === '/' ? '/' : `${settings.path}/`
  // The page's own addresses are relative, and mean something else without the slash.
  if (pathname === settings.path && pathname !== root) return answer(308, null, { location: `${root}${search}` })
  if (!pathname.startsWith(root)) throw notFound(pathname)
  const place = pathname.slice(root.length)
  if (request.method === 'POST') return await change(asked, place)
  if (request.method !== 'GET') return answerMethod()
  if (place.startsWith('api/')) return await look(asked, place.slice('api/'.length))
  const file = await pageFile(place === '' ? 'index.html' : place)
  if (file === undefined) throw notFound(pathname)
  return answer(200, file.body, { 'content-type': file.contentType })
}

async function look({ settings, glances, request, viewer }: Asked, name: string): Promise<Response> {
  if (name === 'overview') {
    const { seal, headers } = sealFor(request, settings)
    const shown = { name: viewer.name, mayAct: viewer.mayAct === true }
    return answerJson(200, { viewer: shown, seal, payloads: settings.payloads, services: await glances() }, headers)
  }
  const found = Object.hasOwn(looks, name) ? looks[name] : undefined
  if (found === undefined) throw notFound(`api/${name}`)
  return answerJson(200, await found(settings, new URL(request.url).searchParams))
}

async function change({ settings, request, viewer }: Asked, place: string): Promise<Response> {
  const name = /^api\/actions\/([a-z-]+)$/.exec(place)?.[1]
  if (name === undefined) throw notFound(place)
  assertSamePage(request, settings.origin)
  if (viewer.mayAct !== true) throw forbidden(`${viewer.name} may look at this dashboard, and not act.`)
  return answerJson(200, await act(settings, viewer.name, name, await readJson(request, maxActionBytes)))
}

/** One look for all who ask while it is under way. */
function together<Result>(work: () => Promise<Result>): () => Promise<Result> {
  let asking: Promise<Result> | undefined
  return () => (asking ??= work().finally(() => (asking = undefined)))
}

function answerMethod(): Response {
  return answer(405, null, { allow: 'GET, POST' })
}

function notFound(what: string): WaybillError {
  return new WaybillError('NOT_FOUND', `There is no ${what} here.`)
}

/**
 * Whether a request to change something comes from the page itself, and not from another site that is open in the same browser.
 *
 * Two things are asked for, each of which would do: the origin that the browser states, and a seal that only the page can read. The
 * seal is a random cookie that the overview repeats in its body; another site can neither read that body nor set the header. So no
 * secret is shared by the processes behind a load balancer.
 */
const cookieName = 'waybill_seal'
const sealHeader = 'x-waybill-seal'
const wellFormed = /^[\w-]{43}$/

/** The browser's seal, and the header that makes it remember a new one. */
function sealFor(
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
function assertSamePage(request: Request, origin: string): void {
  const site = request.headers.get('sec-fetch-site')
  const own = origin === 'request' ? new URL(request.url).origin : origin
  if (request.headers.get('origin') !== own || (site !== null && site !== 'same-origin'))
    throw forbidden(
      `Actions are taken from the page itself only, at ${own}. If that is not its address, tell the dashboard its origin.`,
    )
  const [sent, kept] = [request.headers.get(sealHeader) ?? '', cookieOf(request, cookieName) ?? '']
  if (!wellFormed.test(kept) || !isEqualSecret(sent, kept)) throw forbidden('The page is out of date. Load it again.')
}

/** The value of a cookie as it was sent; the first, if there are several of one name. */
function cookieOf(request: Request, name: string): string | undefined {
  for (const pair of request.headers.get('cookie')?.split(';') ?? []) {
    const [key, value] = pair.trim().split('=', 2)
    if (key === name) return value
  }
  return undefined
}

/** The files of the page, by the name they are asked for: nothing else of the disk is ever read. */
interface PageFile {
  readonly body: Uint8Array<ArrayBuffer>
  readonly contentType: string
}

const files = [
  'index.html',
  'style.css',
  'icon.svg',
  'page.js',
  'elements.js',
  'services.js',
  'letters.js',
  'parked.js',
  'trace.js',
  'actions.js',
] as const

const contentTypes: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  js: 'text/javascript; charset=utf-8',
}

/** A file of the page; `undefined` if it has none of this name. */
async function pageFile(asked: string): Promise<PageFile | undefined> {
  const file = files.find((each) => each === asked)
  if (file === undefined) return undefined
  const body = new Uint8Array(await readFile(new URL(`page/${file}`, import.meta.url)))
  return { body, contentType: contentTypes[file.slice(file.lastIndexOf('.') + 1)] ?? 'text/plain' }
}
