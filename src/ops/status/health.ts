/**
 * Liveness and readiness of a process that runs a relay, consumers or both, as functions and as a Fetch-style handler.
 *
 *   /livez    the loops go round. It asks nobody: a database that is down must not get every process restarted.
 *   /readyz   what runs here keeps up: every lane has a relay and nothing waits for too long, and the projections are complete
 *             and not too far behind. It asks the database, once for all who ask at the same time, and not for long.
 *
 * Answers are 200 or 503, with the reasons as JSON. They name services and ages, never data or addresses.
 */
import type { Consumer } from '../../consumer/consumer.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import type { Service } from '../../core/service/lifetime.ts'
import { atLeast, resolve } from '../../core/options.ts'
import { unlessLate } from '../../core/service/abort.ts'
import type { Relay } from '../../outbox/relay/relay.ts'
import { one } from '../../postgres/query/database.ts'
import { selectBacklog, selectLeases } from './status.sql.ts'

export interface HealthOptions {
  /** The relay that runs in this process, if one does. */
  readonly relay?: Relay | undefined
  /** The consumers that run in this process. @default [] */
  readonly consumers?: readonly Consumer[]
  /** Ready means that no event which could be published is older. @default 30_000 */
  readonly maxLagMs?: number
  /** Alive means that the relay and every consumer ended a pass within this time. @default 60_000 */
  readonly maxPassAgeMs?: number
  /** How long readiness may take to find out; then it is no. @default 5_000 */
  readonly timeoutMs?: number
  /** Further conditions of readiness: each returns why not, or nothing. @default {} */
  readonly checks?: Readonly<Record<string, () => Promise<string | undefined>>>
  readonly clock?: Clock
}

export interface HealthReason {
  /** `stuck`, `not-running`, `unavailable`, `lag`, `leases`, a consumer's own code, or the name of a check. */
  readonly code: string
  readonly message: string
}

export interface HealthReport {
  readonly ok: boolean
  /** Why not; empty if all is well. */
  readonly reasons: readonly HealthReason[]
  /** What to know although it is no reason, such as a consumer's `mixed-versions`. */
  readonly notes: readonly HealthReason[]
}

export interface Health {
  live(): HealthReport
  ready(): Promise<HealthReport>
  /** Answers `/livez` and `/readyz`, and 404 for the rest. */
  readonly handler: (request: Request) => Promise<Response>
}

export function createHealth(options: HealthOptions): Health {
  const settings = resolveOptions(options)
  const services: readonly Service[] = [...(settings.relay === undefined ? [] : [settings.relay]), ...settings.consumers]
  const live = (): HealthReport => reportOf(services.flatMap((service) => stuck(service, settings.maxPassAgeMs)))
  let asking: Promise<HealthReport> | undefined
  const ready = (): Promise<HealthReport> => {
    asking ??= bounded(readyReasons(services, settings), settings).finally(() => (asking = undefined))
    return asking
  }
  return {
    live,
    ready,
    handler: async (request) => {
      const { pathname } = new URL(request.url)
      if (pathname !== '/livez' && pathname !== '/readyz') return answer(404, { ok: false, reasons: [], notes: [] }, request)
      if (request.method !== 'GET' && request.method !== 'HEAD')
        return answer(405, { ok: false, reasons: [], notes: [] }, request)
      const report = pathname === '/livez' ? live() : await ready()
      return answer(report.ok ? 200 : 503, report, request)
    },
  }
}

type Settings = Required<HealthOptions>

function stuck({ name, lastPassAgeMs }: Service, maxPassAgeMs: number): HealthReason[] {
  const ageMs = lastPassAgeMs?.()
  if (ageMs === undefined || ageMs <= maxPassAgeMs) return []
  return [{ code: 'stuck', message: `${name} has not ended a pass for ${Math.round(ageMs)} ms.` }]
}

type Found = Omit<HealthReport, 'ok'>

async function readyReasons(services: readonly Service[], settings: Settings): Promise<Found> {
  const { relay, consumers, checks, maxPassAgeMs } = settings
  const states = consumers.map((consumer) => consumer.readiness())
  const parts = [
    ...services.map(async (service) => [...notRunning(service), ...stuck(service, maxPassAgeMs)]),
    ...(relay === undefined ? [] : [relayReasons(relay, settings)]),
    ...states.map(async (state) => (await state).reasons),
    ...Object.entries(checks).map(async ([code, check]) => {
      const message = await check()
      return message === undefined ? [] : [{ code, message }]
    }),
  ]
  const ends = await Promise.allSettled(parts)
  const found = ends.flatMap((end) => (end.status === 'fulfilled' ? end.value : []))
  const notes = (await Promise.allSettled(states)).flatMap((end) => (end.status === 'fulfilled' ? end.value.notes : []))
  // What the driver says may hold an address; the operator finds it in the log.
  const isAsked = ends.every(({ status }) => status === 'fulfilled')
  return { reasons: isAsked ? found : [...found, unavailable('could not be asked')], notes }
}

function notRunning({ name, lastPassAgeMs }: Service): HealthReason[] {
  if (lastPassAgeMs === undefined || lastPassAgeMs() !== undefined) return []
  return [{ code: 'not-running', message: `${name} does not run.` }]
}

/** One row a lane is enough to know the oldest. */
async function relayReasons({ settings }: Relay, { maxLagMs }: Settings): Promise<readonly HealthReason[]> {
  const { db, outbox } = settings
  const { oldest_due_ms } = await one(db, selectBacklog(outbox.tables, 1))
  const { unowned, lanes } = await one(db, selectLeases(outbox.tables, 0))
  const lagMs = Math.round(oldest_due_ms ?? 0)
  return [
    ...(lagMs > maxLagMs
      ? [{ code: 'lag', message: `The oldest event to publish is ${lagMs} ms old; ready means ${maxLagMs} ms at most.` }]
      : []),
    ...(unowned > 0 ? [{ code: 'leases', message: `${unowned} of ${lanes} lanes have no relay.` }] : []),
  ]
}

async function bounded(asked: Promise<Found>, { timeoutMs, clock }: Settings): Promise<HealthReport> {
  const { reasons, notes } = (await unlessLate(asked, timeoutMs, clock)) ?? late(timeoutMs)
  return reportOf(reasons, notes)
}

function late(timeoutMs: number): Found {
  return { reasons: [unavailable(`did not answer within ${timeoutMs} ms`)], notes: [] }
}

function unavailable(what: string): HealthReason {
  return { code: 'unavailable', message: `What readiness depends on ${what}.` }
}

function reportOf(reasons: readonly HealthReason[], notes: readonly HealthReason[] = []): HealthReport {
  return { ok: reasons.length === 0, reasons, notes }
}

function answer(status: number, report: HealthReport, { method }: Request): Response {
  const headers = { 'content-type': 'application/json; charset=utf-8', 'cache-control': 'no-store' }
  return new Response(method === 'HEAD' ? null : JSON.stringify(report), { status, headers })
}

function resolveOptions(options: HealthOptions): Settings {
  const { maxLagMs, maxPassAgeMs, timeoutMs } = defaults.health
  return resolve<Settings>(
    'health',
    { relay: undefined, consumers: [], maxLagMs, maxPassAgeMs, timeoutMs, checks: {}, clock: systemClock },
    options,
    { maxLagMs: atLeast(0), maxPassAgeMs: atLeast(1), timeoutMs: atLeast(1) },
  )
}
