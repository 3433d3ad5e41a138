/**
 * `waybill dashboard`: the page for operators, on this machine, for whoever has its key.
 *
 * It listens on the loopback interface alone: who works elsewhere forwards the port (`ssh -L`), or mounts `createDashboard` behind a
 * login of their own. The key is made anew each time and is in the address that is printed; the browser keeps it as a cookie.
 */
import { randomBytes } from 'node:crypto'
import { WaybillError } from '../core/errors.ts'
import { untilAborted } from '../core/until-aborted.ts'
import { cookieOf } from '../dashboard/cookies.ts'
import type { DashboardOptions, DashboardService, Viewer } from '../dashboard/dashboard-options.ts'
import { createDashboard } from '../dashboard/dashboard.ts'
import { isEqual } from '../dashboard/same-page.ts'
import { schemaReport } from '../ops/schema-report.ts'
import { listenOn, type Listening } from '../telemetry/listen-on.ts'
import type { Command } from './command.ts'
import { alsoOption, withServices, type ConfiguredService } from './configured-services.ts'
import { portOption } from './port-option.ts'
import { databaseOptions } from './settings.ts'

const host = '127.0.0.1'

export const dashboardCommand: Command = {
  summary: 'Show services on a page: what waits, journeys, dead letters, and buttons for what helps',
  details: [
    'It prints an address with a key in it, for the browser of this machine; Ctrl-C ends it. Without --actions it only reads, as',
    'the role …_readonly may. With it the page pauses, resumes, redrives, skips and discards, in the audit log under your name.',
    'For a page behind a login of your own, see createDashboard.',
  ],
  options: {
    ...databaseOptions,
    also: alsoOption,
    port: { type: 'string', value: '<port>', help: 'its port [a free one]' },
    actions: { type: 'boolean', help: 'let the page change things' },
    payloads: { type: 'boolean', help: 'show the bodies and attributes of dead letters' },
  },
  async run(context) {
    const { values, user, note, stopSignal } = context
    const port = portOption(values, 'port') ?? 0
    const viewer: Viewer = { name: user, mayAct: values['actions'] === true }
    const signal = stopSignal()
    return await withServices(context, async (services) => {
      const key = randomBytes(32).toString('base64url')
      const dashboard = createDashboard({
        services: await named(services),
        authorize: whoHas(key, viewer),
        payloads: values['payloads'] === true,
      })
      const server = await listen(port, dashboard.listener)
      note(`Dashboard  ${server.url}/?key=${key}`)
      note(
        viewer.mayAct === true
          ? 'It may change things. Ctrl-C ends it.'
          : 'It only shows; with --actions it may act. Ctrl-C ends it.',
      )
      await untilAborted(signal)
      await server.close()
      return { text: 'Ended.', data: { url: server.url } }
    })
  },
}

async function listen(port: number, listener: Parameters<typeof listenOn>[1]): Promise<Listening> {
  try {
    return await listenOn({ host, port }, listener, { requestTimeout: 30_000 })
  } catch (cause) {
    if ((cause as { readonly code?: unknown }).code !== 'EADDRINUSE') throw cause
    throw new WaybillError(
      'INVALID_OPTION',
      `Port ${port} is taken. Choose another with --port, or leave it out for a free one.`,
      { cause },
    )
  }
}

/** By what their schemas are bound to; two of one name are told apart by a number. */
async function named(services: readonly ConfiguredService[]): Promise<readonly DashboardService[]> {
  const shown: DashboardService[] = []
  for (const { db, schema, consumers, deploymentId } of services) {
    const own = (await schemaReport(db, { schema })).service ?? schema
    const same = shown.filter(({ name }) => name === own || name.startsWith(`${own} (`)).length
    shown.push({ name: same === 0 ? own : `${own} (${same + 1})`, db, schema, consumers, deploymentId })
  }
  return shown
}

/** A cookie is sent to every port of this machine, so its name has the port. */
function whoHas(key: string, viewer: Viewer): DashboardOptions['authorize'] {
  return (request) => {
    const { pathname, port, searchParams } = new URL(request.url)
    const cookie = `waybill_key_${port}`
    if (isEqual(searchParams.get('key') ?? '', key)) {
      const headers = {
        location: pathname,
        'set-cookie': `${cookie}=${key}; Path=/; HttpOnly; SameSite=Strict`,
        'cache-control': 'no-store',
      }
      return new Response(null, { status: 303, headers })
    }
    if (isEqual(cookieOf(request, cookie) ?? '', key)) return viewer
    return new Response('Open the address that waybill dashboard has printed: the key is in it.\n', {
      status: 403,
      headers: { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' },
    })
  }
}
