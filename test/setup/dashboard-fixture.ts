/**
 * A dashboard over a migrated schema, asked as the page asks it, with something parked or dead in it if a test wants that.
 */
import { createDashboard, type Dashboard, type DashboardOptions } from '../../src/dashboard/dashboard.ts'
import { createRelay } from '../../src/outbox/relay/relay.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { memory } from '../../src/transport/memory/memory.ts'
import { consumerFixture, published, videos, type ConsumerFixture } from './consumer-fixture.ts'

export const at = 'https://ops.example.com'
export const ada = { name: 'ada', mayAct: true }

export interface Site extends ConsumerFixture {
  readonly dashboard: Dashboard
  get(place: string, headers?: Record<string, string>): Promise<Reply>
  /** As the page sends it. */
  post(action: string, body: unknown, headers?: Record<string, string>): Promise<Reply>
  audited(): Promise<readonly unknown[]>
}

interface Reply {
  readonly status: number
  readonly headers: Headers
  readonly body: never
}

export const seal = 'a'.repeat(43)
export const fromPage = {
  origin: at,
  'sec-fetch-site': 'same-origin',
  'content-type': 'application/json',
  'x-waybill-seal': seal,
  cookie: `theme=dark; waybill_seal=${seal}`,
}

export async function site(db: Database, options: Partial<DashboardOptions> = {}, given?: ConsumerFixture): Promise<Site> {
  const fixture = given ?? (await consumerFixture(db))
  const { schema } = fixture
  const dashboard = createDashboard({ services: [{ name: 'shop', db, schema }], authorize: () => ada, origin: at, ...options })
  const ask = async (place: string, init: RequestInit): Promise<Reply> => {
    const response = await dashboard.handler(new Request(`${at}${place}`, init))
    const text = await response.text()
    const isJson = response.headers.get('content-type')?.startsWith('application/json') === true
    return { status: response.status, headers: response.headers, body: (isJson ? JSON.parse(text) : text) as never }
  }
  return {
    ...fixture,
    dashboard,
    get: (place, headers = {}) => ask(place, { headers }),
    post: (action, body, headers = fromPage) =>
      ask(`${options.path ?? ''}/api/actions/${action}`, { method: 'POST', headers, body: JSON.stringify(body) }),
    audited: () => fixture.query('select actor, action, details from $schema.audit_log order by id'),
  }
}

/** An event of `v1` that the broker refuses is parked, with one behind it. */
export async function parked(
  db: Database,
  options: Partial<DashboardOptions> = {},
): Promise<Site & { readonly eventId: string }> {
  const here = await site(db, options)
  const broker = memory({ rejects: () => true })
  for (const title of ['one', 'two']) await transaction(db, (tx) => here.outbox.add(tx, videos.VideoPublished, 'v1', { title }))
  await createRelay({ db, outbox: here.outbox, transport: broker, maxAttempts: 1 }).once()
  const { body } = await here.get('/api/parked?service=shop')
  return { ...here, eventId: (body as { parked: { eventId: string }[] }).parked[0]?.eventId ?? '' }
}

/** Version 1 of `v1`, which cannot be read and is dead. */
export async function dead(db: Database, options: Partial<DashboardOptions> = {}): Promise<Site & { readonly id: string }> {
  const here = await site(db, options)
  const stop = here.start(here.consumer({ maxAttempts: 1 }).on(videos.VideoPublished, async () => {}))
  await here.publish({ ...published('v1', 1), body: Buffer.from('secret') })
  await eventually(async () => (await here.count('dead_letter')) === 1)
  await stop()
  const [letter] = await here.query<{ id: string }>('select id::text from $schema.dead_letter')
  return { ...here, id: letter?.id ?? '' }
}
