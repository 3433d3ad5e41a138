/**
 * What a dashboard is made from, checked before it answers anybody.
 *
 * There is no way to make one that lets everybody in by forgetting something: who may look is a function that its owner writes.
 */
import type { Consumer } from '../consumer/consumer.ts'
import { systemClock, type Clock } from '../core/service/clock.ts'
import { defaults } from '../core/defaults.ts'
import { WaybillError } from '../core/errors.ts'
import { oneOf, refuseUnknown, resolve, wholeBetween } from '../core/options.ts'
import type { StatusLimits } from '../ops/status/check.ts'
import { checkMarkerTtl } from '../ops/status/status.ts'
import type { Database } from '../postgres/query/database.ts'
import { withDeadlines } from '../postgres/transaction/deadline.ts'

/** A service that the dashboard shows. */
export interface DashboardService {
  /** What the page calls it. */
  readonly name: string
  readonly db: Database
  /** @default 'waybill' */
  readonly schema?: string
  /** Its consumers, for the versions of their projections in a trace; they need not run here. @default [] */
  readonly consumers?: readonly Pick<Consumer, 'settings' | 'routes'>[]
  /** The deployment it has to be: on any other database nothing is shown or done. @default whatever the database is stamped with */
  readonly deploymentId?: string | undefined
  /** `ttlMs` of its `createMarkerCleanup`, by which the verdict tells whether that keeps up. @default 3_600_000 */
  readonly markerTtlMs?: number | undefined
}

/** Who looks at the page. */
export interface Viewer {
  /** For the audit log. */
  readonly name: string
  /** Whether this viewer may pause, redrive, skip and discard. @default false */
  readonly mayAct?: boolean
}

export interface DashboardOptions {
  /** What the page shows. */
  readonly services: readonly DashboardService[]
  /**
   * Who asks; called for each request, before anything is looked up. `undefined` is refused with 403; a response, such as the
   * way to a login, is sent as it is.
   */
  readonly authorize: (request: Request) => Viewer | Response | undefined | Promise<Viewer | Response | undefined>
  /** Where it is mounted, such as `/admin/waybill`. @default '/' */
  readonly path?: string
  /**
   * Where its viewers see it, such as `https://ops.example.com`: actions are taken from there alone. `'request'` believes the Host header
   * instead, which a hostile page can choose: only for an authorize by a secret that the page alone knows, such as a key in its path.
   */
  readonly origin: string
  /** Shows the bodies and attributes of dead letters, which may hold what an operator should not see. @default false */
  readonly payloads?: boolean
  /** What counts as too much, in the verdict. @default {} */
  readonly limits?: StatusLimits
  /** How long a service may take to say how it is, and a database to answer, before the page says so. @default 5_000 */
  readonly timeoutMs?: number
  readonly clock?: Clock
}

export type ShownService = Required<DashboardService>

export interface DashboardSettings extends Required<Omit<DashboardOptions, 'services'>> {
  readonly services: readonly ShownService[]
}

/** The page waits for 20 s. */
const longestTimeoutMs = 15_000

export function resolveOptions(options: DashboardOptions): DashboardSettings {
  const settings = resolve<Required<DashboardOptions>>(
    'dashboard',
    {
      services: [],
      authorize: () => undefined,
      path: '/',
      origin: '',
      payloads: false,
      limits: {},
      timeoutMs: defaults.health.timeoutMs,
      clock: systemClock,
    },
    options,
    {
      path: (path) => /^\/(?:[\w.~-]+(?:\/[\w.~-]+)*)?$/.test(path) || 'must begin with "/" and not end with one',
      payloads: oneOf(true, false),
      timeoutMs: wholeBetween(1, longestTimeoutMs),
      origin: (origin) =>
        origin === 'request' ||
        (URL.canParse(origin) && new URL(origin).origin === origin && /^https?:/.test(origin)) ||
        'must be an origin, such as https://ops.example.com',
    },
  )
  if (typeof options.authorize !== 'function') {
    throw new WaybillError(
      'INVALID_OPTION',
      'dashboard.authorize: a dashboard needs to know who may look. Pass a function that returns { name, mayAct } for a viewer, and undefined for everybody else.',
    )
  }
  if (settings.origin === '') {
    throw new WaybillError(
      'INVALID_OPTION',
      "dashboard.origin: say where its viewers see it, such as https://ops.example.com. The Host header of a request is believed only with origin: 'request'.",
    )
  }
  return { ...settings, services: checkedServices(settings) }
}

function checkedServices({ services, timeoutMs, clock }: Required<DashboardOptions>): readonly ShownService[] {
  if (services.length === 0)
    throw new WaybillError('INVALID_OPTION', 'dashboard.services: there is nothing to show. Pass at least one { name, db }.')
  const names = new Set<string>()
  return services.map((service) => {
    refuseUnknown('dashboard.services', service, ['name', 'db', 'schema', 'consumers', 'deploymentId', 'markerTtlMs'])
    const { name, db, schema = defaults.schema, consumers = [], deploymentId, markerTtlMs } = service
    if (typeof name !== 'string' || name === '' || names.has(name))
      throw new WaybillError('INVALID_OPTION', `dashboard.services: each needs a name of its own, got ${JSON.stringify(name)}.`)
    names.add(name)
    const verdict = markerTtlMs === undefined || checkMarkerTtl(markerTtlMs)
    if (verdict !== true) throw new WaybillError('INVALID_OPTION', `dashboard.services: markerTtlMs of "${name}" ${verdict}.`)
    return { name, db: withDeadlines(db, { statementMs: timeoutMs, clock }), schema, consumers, deploymentId, markerTtlMs }
  })
}
