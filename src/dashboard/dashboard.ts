/**
 * A page for operators: what `waybill status`, `trace`, `doctor` and `dlq` say, of several services at once, and the buttons that
 * pause, resume, redrive, skip and discard.
 *
 *   const origin = 'https://ops.example.com'
 *   const dashboard = createDashboard({ services: [{ name: 'shop', db }], authorize: (request) => signedIn(request), origin, path: '/ops' })
 *   app.all('/ops/*', (c) => dashboard.handler(c.req.raw))     // Hono, Bun, Deno: Request → Response
 *   app.use('/ops', dashboard.listener)                         // Express; or a listener of node:http
 *
 * Nobody sees anything whom `authorize` does not name. Changes need a viewer who may act, the page's own origin and its seal; each
 * is in the audit log under the viewer's name. It keeps nothing: any number of processes may serve it.
 */
import { readJson } from '../core/encoding/read-json.ts'
import { WaybillError } from '../core/errors.ts'
import { act } from './actions.ts'
import { answer, answerError, answerJson, forbidden } from './answers.ts'
import { resolveOptions, type DashboardOptions, type DashboardSettings, type Viewer } from './dashboard-options.ts'
import { createListener, type Listener } from './listener.ts'
import { looks, overview, type Glance } from './looks.ts'
import { pageFile } from './page-files.ts'
import { assertSamePage, sealFor } from './same-page.ts'

export type { DashboardOptions, DashboardService, Viewer } from './dashboard-options.ts'
export type { Listener } from './listener.ts'

export interface Dashboard {
  /** Answers everything under `path`, Fetch style. It rejects only with what `authorize` throws, which is nobody's to read. */
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

/** Only who has a name is a viewer: a program that nobody compiled may return `false`, `null`, or a yes that names nobody. */
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
