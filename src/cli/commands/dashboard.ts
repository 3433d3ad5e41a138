/**
 * `waybill dashboard`: the page for operators, on this machine, for whoever has its key.
 *
 * It listens on the loopback interface alone: who works elsewhere forwards the port (`ssh -L`), or mounts `createDashboard` behind a
 * login of their own. The key is made anew each time, and is the path: a cookie would be sent to every port of this machine.
 */
import { randomBytes } from 'node:crypto'
import { systemClock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { isEqualSecret } from '../../core/equal-secret.ts'
import { unlessLate, untilAborted } from '../../core/service/abort.ts'
import type { DashboardOptions, DashboardService, Viewer } from '../../dashboard/dashboard-options.ts'
import { createDashboard } from '../../dashboard/dashboard.ts'
import { schemaReport } from '../../ops/connect/schema-report.ts'
import { listenOn, type Listening } from '../../telemetry/listen-on.ts'
import type { Command } from '../frame/command.ts'
import { alsoOption, withServices, type ConfiguredService } from '../frame/configured-services.ts'
import { portOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'

const host = '127.0.0.1'
/** A database that says nothing is not waited for: the page will tell. */
const askMs = 5_000

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
    return await withServices(
      context,
      async (services) => {
        const key = randomBytes(32).toString('base64url')
        const dashboard = createDashboard({
          services: await named(services),
          authorize: whoHas(key, viewer),
          // A page that does not know the key has no address to send anything to, whatever Host it makes up.
          origin: 'request',
          path: `/${key}`,
          payloads: values['payloads'] === true,
        })
        const server = await listen(port, dashboard.listener)
        note(`Dashboard  ${server.url}/${key}/`)
        note(
          viewer.mayAct === true
            ? 'It may change things. Ctrl-C ends it.'
            : 'It only shows; with --actions it may act. Ctrl-C ends it.',
        )
        await untilAborted(signal)
        await server.close()
        return { text: 'Ended.', data: { url: server.url } }
      },
      { othersMayBeAway: true },
    )
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

/** By what their schemas are bound to, or are said to be; two of one name also by their deployments, or by where they are. */
async function named(services: readonly ConfiguredService[]): Promise<readonly DashboardService[]> {
  const known = await Promise.all(services.map(async (each) => ({ ...each, ...(await stampOf(each)) })))
  const shown: DashboardService[] = []
  for (const { db, schema, consumers, deploymentId, markerTtlMs, address, own, stamped } of known) {
    const isShared = known.some((each) => each.address !== address && each.own === own)
    const full = isShared ? `${own} (${stamped ?? address})` : own
    const isTaken = shown.some(({ name }) => name === full)
    shown.push({ name: isTaken ? `${full} ${shown.length + 1}` : full, db, schema, consumers, deploymentId, markerTtlMs })
  }
  return shown
}

/** What the schema says of itself, if it can be asked. */
async function stampOf({
  db,
  schema,
  service,
  address,
}: ConfiguredService): Promise<{ own: string; stamped: string | undefined }> {
  try {
    const report = await unlessLate(schemaReport(db, { schema }), askMs, systemClock)
    if (report !== undefined) return { own: report.service ?? service ?? schema, stamped: report.deploymentId }
  } catch {
    // The page says why.
  }
  return { own: service ?? address, stamped: undefined }
}

/** Who knows the path knows the key. */
function whoHas(key: string, viewer: Viewer): DashboardOptions['authorize'] {
  return (request) => {
    const [, given = ''] = new URL(request.url).pathname.split('/')
    if (isEqualSecret(given, key)) return viewer
    return new Response('Open the address that waybill dashboard has printed: the key is in it.\n', {
      status: 403,
      headers: { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' },
    })
  }
}
