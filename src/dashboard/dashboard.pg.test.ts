import { describe, expect, test } from 'vitest'
import { consumerFixture } from '../../test/setup/consumer-fixture.ts'
import { ada, at, fromPage, site, seal } from '../../test/setup/dashboard-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { createDashboard, type DashboardOptions } from './dashboard.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
/** Of those that change nothing. */
const untouched = await site(db)

describe('who may look', () => {
  test('a dashboard without authorize cannot be made', () => {
    const options = { services: [{ name: 'shop', db }] } as unknown as DashboardOptions
    expect(() => createDashboard(options)).toThrow('a dashboard needs to know who may look')
  })

  test.each(['/', '/page.js', '/api/overview', '/api/trace?id=x', '/nothing'])(
    'nobody else is told anything by %s',
    async (place) => {
      const { get } = await site(db, { authorize: () => undefined }, untouched)
      expect(await get(place)).toMatchObject({ status: 403, body: { error: { code: 'FORBIDDEN' } } })
    },
  )

  test.each([undefined, null, false, true, { status: 302, headers: {} }, '', 'ada', {}, { name: '' }, { name: 7, mayAct: true }])(
    'an authorize that returns %j names nobody',
    async (given) => {
      const { get } = await site(db, { authorize: () => given as never }, untouched)
      for (const place of ['/api/overview', '/api/letters?service=shop'])
        expect(await get(place)).toMatchObject({ status: 403, body: { error: { code: 'FORBIDDEN' } } })
    },
  )

  test('nor may they act, however right the rest is; and what authorize throws is not a yes', async () => {
    const { post, audited } = await site(db, { authorize: () => undefined }, untouched)
    expect((await post('pause-stream', { service: 'shop', aggregateType: 'video' })).status).toBe(403)
    const broken = await site(db, { authorize: () => Promise.reject(new Error('no session store')) }, untouched)
    await expect(broken.get('/api/overview')).rejects.toThrow('no session store')
    expect(await audited()).toHaveLength(0)
  })

  test('a response of authorize is sent as it is', async () => {
    const { get } = await site(db, { authorize: () => Response.redirect('https://login.example.com/', 302) }, untouched)
    expect((await get('/')).headers.get('location')).toBe('https://login.example.com/')
  })
})

describe('who may act', () => {
  const pause = { service: 'shop', aggregateType: 'video' }

  test.each<[string, Record<string, string>]>([
    ['another site', { ...fromPage, origin: 'https://evil.example.com' }],
    ['another site that the browser names', { ...fromPage, 'sec-fetch-site': 'cross-site' }],
    ['a page of the same host without TLS', { ...fromPage, origin: at.replace('https:', 'http:') }],
    ['a page of the same host by another scheme', { ...fromPage, origin: at.replace('https:', 'ftp:') }],
    ['a neighbouring site', { ...fromPage, 'sec-fetch-site': 'same-site' }],
    ['a frame without an origin', { ...fromPage, origin: 'null' }],
    [
      'a program that states no origin',
      { 'content-type': 'application/json', 'x-waybill-seal': seal, cookie: `waybill_seal=${seal}` },
    ],
    ['a page with another seal', { ...fromPage, 'x-waybill-seal': 'b'.repeat(43) }],
    ['a page without a seal', { origin: at, cookie: `waybill_seal=${seal}` }],
    ['a page without the cookie', { origin: at, 'x-waybill-seal': seal }],
    ['empty seals on both sides', { origin: at, 'x-waybill-seal': '', cookie: 'waybill_seal=' }],
  ])('nothing is done for %s', async (_who, headers) => {
    const { post, audited } = untouched
    expect(await post('pause-stream', pause, headers)).toMatchObject({ status: 403, body: { error: { code: 'FORBIDDEN' } } })
    expect(await audited()).toHaveLength(0)
  })

  test('a viewer who may only look is told so', async () => {
    const { post, audited } = await site(db, { authorize: () => ({ name: 'bob' }) }, untouched)
    expect(await post('pause-stream', pause)).toMatchObject({
      status: 403,
      body: { error: { message: expect.stringContaining('bob') } },
    })
    expect(await audited()).toHaveLength(0)
  })

  test('the page gets its seal with the overview, and keeps it', async () => {
    const { get, post } = await site(db)
    const first = await get('/api/overview')
    const { seal: given } = first.body as { seal: string }
    const cookie = first.headers.get('set-cookie') ?? ''
    expect(cookie).toBe(`waybill_seal=${given}; Path=/; HttpOnly; SameSite=Strict; Secure`)
    const kept = { cookie: `waybill_seal=${given}` }
    const again = await get('/api/overview', kept)
    expect({ seal: (again.body as { seal: string }).seal, cookie: again.headers.get('set-cookie') }).toEqual({
      seal: given,
      cookie: null,
    })
    expect((await post('pause-stream', pause, { ...kept, origin: at, 'x-waybill-seal': given })).status).toBe(200)
  })

  test('the host that a request names is not believed, unless told to', async () => {
    const rebound = { ...fromPage, host: 'evil.example', origin: 'https://evil.example' }
    const init = { method: 'POST', headers: rebound, body: JSON.stringify(pause) }
    const ask = async (given: Awaited<ReturnType<typeof site>>): Promise<number> =>
      (await given.dashboard.handler(new Request('https://evil.example/api/actions/pause-stream', init))).status
    expect(await ask(untouched)).toBe(403)
    const believing = await site(db, { origin: 'request' })
    expect(await ask(believing)).toBe(200)
    expect((await believing.post('pause-stream', pause, { ...fromPage, origin: 'http://ops.example.com' })).status).toBe(403)
  })

  test('who is asked before a body is read, and a viewer who may not act is refused without it', async () => {
    for (const authorize of [() => undefined, () => ({ name: 'bob' })]) {
      const { dashboard } = await site(db, { authorize }, untouched)
      let pulled = 0
      const body = new ReadableStream({ pull: () => void (pulled += 1) }, { highWaterMark: 0 })
      const init = { method: 'POST', headers: fromPage, body, duplex: 'half' } as const
      const answer = await dashboard.handler(new Request(`${at}/api/actions/pause-stream`, init))
      expect([answer.status, pulled]).toEqual([403, 0])
    }
  })

  test('behind a proxy that changes the host, its own origin is told', async () => {
    const seen = 'https://ops.public.example.com'
    const { post, dashboard } = await site(db, { origin: seen })
    expect((await post('pause-stream', pause)).status).toBe(403)
    expect((await post('pause-stream', pause, { ...fromPage, origin: seen })).status).toBe(200)
    const plain = await dashboard.handler(new Request('http://10.0.0.7/api/overview'))
    expect(plain.headers.get('set-cookie')).toContain('; Secure')
  })

  test('on a database that is not the deployment it was made for, nothing is shown or done', async () => {
    const { schema } = await consumerFixture(db)
    const { get, post, query } = await site(db, { services: [{ name: 'shop', db, schema, deploymentId: 'orders-production' }] })
    expect(await get('/api/overview')).toMatchObject({ body: { services: [{ error: { code: 'WRONG_DEPLOYMENT' } }] } })
    expect(await post('pause-stream', pause)).toMatchObject({ body: { error: { code: 'WRONG_DEPLOYMENT' } } })
    expect(await query(`select * from ${schema}.audit_log`)).toHaveLength(0)
  })
})

test('it can be mounted anywhere, and everything of it is there', async () => {
  const { get, post } = await site(db, { path: '/admin/waybill' })
  expect(await get('/admin/waybill?a=b')).toMatchObject({ status: 308 })
  expect((await get('/admin/waybill?a=b')).headers.get('location')).toBe('/admin/waybill/?a=b')
  expect((await get('/admin/waybill/')).body).toContain('<!doctype html>')
  expect((await get('/admin/waybill/api/overview')).headers.get('set-cookie')).toContain('Path=/admin/waybill;')
  expect(await post('pause-stream', { service: 'shop', aggregateType: 'video' })).toMatchObject({ status: 200 })
  for (const outside of ['/', '/admin', '/admin/waybill2/', '/api/overview']) expect((await get(outside)).status).toBe(404)
})

test('options that cannot be meant are refused', () => {
  const make = (options: object) => () =>
    createDashboard({ services: [{ name: 'shop', db }], authorize: () => ada, origin: at, ...options })
  expect(make({ path: 'ops' })).toThrow('must begin with "/"')
  expect(make({ path: '/ops/' })).toThrow('not end with one')
  for (const origin of ['ops.example.com/', 'https://ops.example.com/', 'null', 'ftp://ops.example.com', 'https://a b'])
    expect(make({ origin })).toThrow('must be an origin')
  expect(make({ origin: undefined })).toThrow('say where its viewers see it')
  expect(make({ services: [] })).toThrow('nothing to show')
  expect(make({ payloads: 'false' })).toThrow('must be one of true, false')
  expect(make({ timeoutMs: 0 })).toThrow('from 1 to 15000')
  expect(
    make({
      services: [
        { name: 'shop', db },
        { name: 'shop', db },
      ],
    }),
  ).toThrow('a name of its own')
  expect(make({ services: [{ name: 'shop', db, markerTtlMs: 'a day' }] })).toThrow('markerTtlMs of "shop" must be a whole number')
  expect(make({ authorise: () => ada })).toThrow('Did you mean "authorize"?')
})
