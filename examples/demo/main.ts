/**
 * `npm start`: a live system that you may break, on one page. See docs/guides/demo.md.
 *
 *   --port 8080   the page's port, instead of a free one
 *   --rate 200    changes a second
 *   --for 30s     runs by itself for that long, breaks everything in turn, waits until all has arrived, and ends by the verdict
 *   --json        prints one line of JSON at the end, and the rest on standard error
 *
 * Exit code 0: nothing was lost, doubled or reordered. 1: something was; the output says what. 2: it could not be started.
 */
import { once } from 'node:events'
import { parseArgs } from 'node:util'
import { stopSignal } from '../game/stop-signal.ts'
import { wreak } from './chaos.ts'
import { startDemo, type Demo } from './demo.ts'
import { journeyOf } from './journey.ts'
import { startPageServer, type PageServer } from './page-server.ts'
import { Rate, reportOf, snapshotOf, type Report } from './snapshot.ts'

interface Options {
  readonly port: number
  readonly perSecond: number
  readonly forMs: number | undefined
  readonly json: boolean
  /** For people: standard output, unless that is kept for the report. */
  readonly say: (line: string) => void
}

const rates = { least: 1, usual: 100, most: 1_000 }
const stopping = stopSignal()

process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  process.stderr.write(`The demo cannot run. ${error instanceof Error ? error.message : String(error)}\n`)
  return 2
})

async function main(args: readonly string[]): Promise<number> {
  const options = readOptions(args)
  const { forMs, say } = options
  const demo = await startDemo({
    env: process.env,
    perSecond: options.perSecond,
    onHappening: ({ text }) => void (forMs !== undefined && say(`  ${text}`)),
  })
  let page: PageServer | undefined
  try {
    page = await startPageServer(pageSource(demo), options.port)
    // Counted from the start of the process, loading included.
    const readyMs = Math.round(performance.now())
    introduce(demo, page, { ...options, readyMs })
    demo.timeline.add('note', `started: users make ${options.perSecond} changes a second`)
    const startedAt = performance.now()
    if (forMs !== undefined) await wreak(demo.actions, forMs, stopping)
    else if (!stopping.aborted) await once(stopping, 'abort')
    const ranMs = Math.round(performance.now() - startedAt)
    say('Waiting until everything that was committed has arrived …')
    await demo.finish(forMs === undefined ? 20_000 : 90_000)
    const report = reportOf(demo, { readyMs, ranMs })
    conclude(report, options)
    return report.verdict === 'ok' ? 0 : 1
  } finally {
    await page?.stop()
    await demo.stop()
  }
}

function readOptions(args: readonly string[]): Options {
  const text = { type: 'string' } as const
  const { values } = parseArgs({
    args: [...args],
    options: { port: text, rate: text, for: text, json: { type: 'boolean', default: false } },
    // `npm run example -- demo` passes the example's name on.
    allowPositionals: true,
  })
  return {
    port: Number(values.port ?? 0),
    perSecond: rateOf(values.rate),
    forMs: values.for === undefined ? undefined : milliseconds(values.for),
    json: values.json,
    say: (line) => void (values.json ? process.stderr : process.stdout).write(`${line}\n`),
  }
}

function pageSource(demo: Demo): Parameters<typeof startPageServer>[0] {
  const rate = new Rate()
  return {
    snapshot: () => snapshotOf(demo, rate),
    journey: (eventId) => journeyOf({ ...demo.system, consumer: demo.consumer }, eventId),
    act: (name, value) => {
      if (name === 'rate') {
        demo.traffic.perSecond = rateOf(value)
        return true
      }
      const action = demo.actions.find((each) => each.name === name && each.disabled === undefined)
      void action?.run()
      return action !== undefined
    },
  }
}

function introduce(
  { system, processes }: Demo,
  page: PageServer,
  { say, forMs, readyMs }: Options & { readonly readyMs: number },
): void {
  const { settings, databases, broker, cache } = system
  say(`Ready after ${readyMs} ms. Break it: ${page.url}`)
  say('')
  say(`  owner     http://127.0.0.1:${settings.videoPort}     ${shown(databases.videoUrl)}`)
  say(`  catalog   http://127.0.0.1:${settings.catalogPort}     ${shown(databases.catalogUrl)}`)
  say(`  broker    PUBSUB_EMULATOR_HOST=${broker.emulatorHost ?? 'Google'}     project ${broker.projectId}`)
  if (broker.isOwn) say(`            faults http://127.0.0.1:${broker.ports.adminPort}/faults`)
  say(`  Redis     ${cache.url === undefined ? 'none on this machine: commands are cached in their process' : shown(cache.url)}`)
  const ports = { Postgres: databases.proxyPort, broker: broker.proxyPort }
  const proxies = Object.entries(ports).flatMap(([name, port]) => (port === undefined ? [] : [`${name} ${port}`]))
  if (proxies.length > 0) say(`  proxies   ${proxies.join(', ')}: what "cut the network" cuts`)
  say(`  metrics   http://127.0.0.1:${settings.videoPort}/metrics, http://127.0.0.1:${settings.catalogPort}/metrics`)
  say(`  processes ${processes.map(({ name, pid }) => `${name} ${pid}`).join(', ')}`)
  say('')
  say(
    forMs === undefined
      ? 'Ctrl-C stops it and removes its files.'
      : `It stops by itself after ${forMs / 1_000} s and what it then takes to come to rest.`,
  )
  process.send?.({ url: page.url })
}

/** An address that it was given may hold a password. */
function shown(url: string): string {
  const address = new URL(url)
  if (address.password !== '') address.password = '***'
  if (address.searchParams.has('password')) address.searchParams.set('password', '***')
  return address.href
}

function conclude(report: Report, { json, say }: Options): void {
  const { verdict, committed, applied, lost, doubled, outOfOrder, stale, kills, violations } = report
  for (const violation of violations) say(`  violation: ${violation}`)
  say(
    `${committed} committed, ${applied} applied, ${kills.count} faults: lost ${lost}, doubled ${doubled}, out of order ${outOfOrder}, stale ${stale}. Verdict: ${verdict}`,
  )
  if (json) process.stdout.write(`${JSON.stringify(report)}\n`)
}

function rateOf(text: string | undefined): number {
  const rate = Number(text ?? rates.usual)
  return Number.isFinite(rate) ? Math.min(rates.most, Math.max(rates.least, rate)) : rates.usual
}

function milliseconds(text: string): number {
  const [, amount, unit = 's'] = /^(\d+(?:\.\d+)?)(ms|s|m)$/.exec(text) ?? []
  if (amount === undefined) throw new Error(`--for ${text}: write a number and ms, s or m, such as 30s.`)
  return Number(amount) * ({ ms: 1, s: 1_000, m: 60_000 }[unit] ?? 1_000)
}
