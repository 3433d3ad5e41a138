import { request } from 'node:http'
import { afterEach, expect, test } from 'vitest'
import { createSignals } from '../core/signals.ts'
import { createMetrics } from './metrics.ts'
import { startTelemetryServer, type TelemetryServer, type TelemetryServerOptions } from './telemetry-server.ts'

let server: TelemetryServer | undefined
afterEach(async () => server?.close())

async function start(health?: TelemetryServerOptions['health'], hosts: readonly string[] = []) {
  const signals = createSignals()
  server = await startTelemetryServer({ metrics: createMetrics({ signals }), health, hosts })
  return { signals, url: server.url }
}

test('it listens on the loopback interface unless told otherwise', async () => {
  const { url } = await start()
  expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
})

test('/metrics is what Prometheus reads', async () => {
  const { signals, url } = await start()
  signals.emit('blobs.expired', { count: 2 })
  const response = await fetch(`${url}/metrics`)
  expect(response.headers.get('content-type')).toContain('version=0.0.4')
  expect(await response.text()).toContain('waybill_blobs_expired_total 2\n')
})

test('every other path is asked of the health handler', async () => {
  const { url } = await start((request) => new Response(new URL(request.url).pathname, { status: 503 }))
  const response = await fetch(`${url}/readyz?why`)
  expect(response.status).toBe(503)
  expect(await response.text()).toBe('/readyz')
})

test('a health handler that fails is an error of the server, and the next request is answered', async () => {
  const { url } = await start(() => Promise.reject(new Error('canary-secret')))
  const response = await fetch(`${url}/readyz`)
  expect(response.status).toBe(500)
  expect(await response.text()).toBe('')
  expect((await fetch(`${url}/metrics`)).status).toBe(200)
})

test('nothing else is there, and nothing can be sent', async () => {
  const { url } = await start()
  expect((await fetch(`${url}/livez`)).status).toBe(404)
  expect((await fetch(`${url}/metrics`, { method: 'POST', body: 'x'.repeat(100_000) })).status).toBe(405)
  const head = await fetch(`${url}/metrics`, { method: 'HEAD' })
  expect(head.status).toBe(200)
  expect(await head.text()).toBe('')
})

/** What is answered to a request for this host. */
function askedAs(host: string, path: string): Promise<{ readonly status: number | undefined; readonly body: string }> {
  return new Promise((resolve, reject) => {
    const asked = request(`${server?.url}${path}`, { headers: { host } }, (answer) => {
      let body = ''
      answer.setEncoding('utf8').on('data', (text: string) => void (body += text))
      answer.on('end', () => resolve({ status: answer.statusCode, body }))
    })
    asked.on('error', reject).end()
  })
}

test('asked by a name that is not its own it tells nothing, and answers probes by their status', async () => {
  await start(() => Response.json({ reasons: ['catalog lags'] }, { status: 503 }), ['relay.shop.svc'])
  for (const host of [
    'evil.example',
    'evil.example:9464',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'relay.shop.svc.evil',
  ])
    expect([host, await askedAs(host, '/metrics'), await askedAs(host, '/readyz')]).toEqual([
      host,
      { status: 403, body: 'This name is not listed in hosts.\n' },
      { status: 503, body: '' },
    ])
  for (const host of ['localhost', 'LOCALHOST:9464', '127.0.0.1:1', '10.1.2.3:8080', '[::1]:8080', 'relay.shop.svc:9464']) {
    expect([host, await askedAs(host, '/metrics')]).toMatchObject([host, { status: 200 }])
    expect([host, await askedAs(host, '/readyz')]).toMatchObject([host, { body: expect.stringContaining('lags') }])
  }
})

test('no answer is guessed to be of another type than it says', async () => {
  const { url } = await start(() => new Response('<script>'))
  for (const path of ['/metrics', '/readyz', '/nothing'])
    expect((await fetch(`${url}${path}`)).headers.get('x-content-type-options')).toBe('nosniff')
})
