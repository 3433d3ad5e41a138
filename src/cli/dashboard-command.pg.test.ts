import { expect, test } from 'vitest'
import { runLine, type Ended } from '../../test/setup/run-line.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { migrate } from '../postgres/migrate.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'orders' })

/** Runs the line until `use`, which gets the printed address, is done. */
async function serve(line: string, use: (address: URL) => Promise<void>): Promise<Ended> {
  const stop = new AbortController()
  let said = ''
  let used: Promise<void> | undefined
  const onErr = (text: string): void => {
    said += text
    const address = /^Dashboard +(\S+)\n/m.exec(said)?.[1]
    if (address !== undefined) used ??= use(new URL(address)).finally(() => stop.abort())
  }
  const env = { DATABASE_URL: database.url }
  const ended = await runLine(line, { folder: import.meta.dirname, env, signal: stop.signal, onErr })
  await used
  return ended
}

/** What the printed address makes of a browser: one with a cookie. */
async function keyOf(address: URL): Promise<string> {
  const response = await fetch(address, { redirect: 'manual' })
  const [cookie = ''] = response.headers.getSetCookie()
  expect({ status: response.status, location: response.headers.get('location') }).toEqual({ status: 303, location: '/' })
  expect(cookie).toMatch(/; Path=\/; HttpOnly; SameSite=Strict$/)
  return cookie.split(';')[0] ?? ''
}

test('the printed address opens the page; without its key there is nothing to see', async () => {
  const told = await serve('dashboard --json', async (address) => {
    expect(address.hostname).toBe('127.0.0.1')
    for (const wrong of ['/', '/api/overview', `/?key=${'a'.repeat(43)}`, '/?key='])
      expect(await (await fetch(new URL(wrong, address))).text()).toContain('the key is in it')
    const cookie = await keyOf(address)
    expect(await (await fetch(new URL('/', address), { headers: { cookie } })).text()).toContain('<!doctype html>')
    const overview = await fetch(new URL('/api/overview', address), { headers: { cookie } })
    expect(await overview.json()).toMatchObject({
      viewer: { name: 'ada', mayAct: false },
      payloads: false,
      services: [{ name: 'orders', status: { service: 'orders' } }],
    })
  })
  expect(told).toMatchObject({ code: 0, err: expect.stringContaining('It only shows') })
  expect(JSON.parse(told.out)).toEqual({ url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/) })
})

test('with --actions it acts under the name of who started it, on the service that was meant', async () => {
  const told = await serve(`dashboard --actions --payloads --also ${database.url}`, async (address) => {
    const key = await keyOf(address)
    const overview = await fetch(new URL('/api/overview', address), { headers: { cookie: key } })
    const { token, services, payloads } = (await overview.json()) as {
      token: string
      services: { name: string }[]
      payloads: boolean
    }
    expect({ names: services.map(({ name }) => name), payloads }).toEqual({ names: ['orders', 'orders (2)'], payloads: true })
    const done = await fetch(new URL('/api/actions/pause-stream', address), {
      method: 'POST',
      headers: { cookie: `${key}; waybill_token=${token}`, 'x-waybill-token': token, origin: address.origin },
      body: JSON.stringify({ service: 'orders', aggregateType: 'video' }),
    })
    expect(await done.json()).toEqual({ text: 'Paused: stream video.', done: true })
  })
  expect(told).toMatchObject({ code: 0, err: expect.stringContaining('It may change things') })
  const { rows } = await db.query('select actor, action from waybill.audit_log')
  expect(rows).toEqual([{ actor: 'ada', action: 'outbox.pause' }])
})

test.each([
  ['--port 99999', '--port: expected a port'],
  ['--schema nowhere', 'is not in this database'],
])('%s is refused', async (options, message) => {
  const { code, err } = await serve(`dashboard ${options}`, async () => {})
  expect({ code: code > 0, err }).toEqual({ code: true, err: expect.stringContaining(message) })
})

test('a port that is taken is named', async () => {
  await serve('dashboard', async ({ port }) => {
    const { code, err } = await serve(`dashboard --port ${port}`, async () => {})
    expect({ code, err }).toEqual({
      code: 2,
      err: `Port ${port} is taken. Choose another with --port, or leave it out for a free one.\n`,
    })
  })
})
