import { expect, test } from 'vitest'
import type { Consumer } from '../../consumer/consumer.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { createHealth } from './health.ts'

/** As much of a consumer as health asks for. */
function consumer(parts: { ageMs: number | undefined; readiness?: () => Promise<unknown> }): Consumer {
  const { readiness = async () => ({ ready: true, reasons: [], notes: [] }) } = parts
  return { name: 'consumer catalog', lastPassAgeMs: () => parts.ageMs, readiness } as unknown as Consumer
}

const at = (path: string, method = 'GET'): Request => new Request(`http://localhost:8080${path}`, { method })

test('a loop whose pass hangs is not alive, and not ready', async () => {
  const stuck = { ageMs: 60_001 }
  const health = createHealth({ consumers: [consumer(stuck)] })
  expect(health.live()).toMatchObject({ ok: false, reasons: [{ code: 'stuck', message: expect.stringContaining('60001 ms') }] })
  expect((await health.handler(at('/livez'))).status).toBe(503)
  expect((await health.ready()).reasons.map(({ code }) => code)).toEqual(['stuck'])
  stuck.ageMs = 10
  expect((await health.handler(at('/livez'))).status).toBe(200)
})

test('checks of the user are conditions of readiness, not of liveness', async () => {
  const health = createHealth({ checks: { migrations: async () => 'Still migrating.' } })
  expect(await health.ready()).toEqual({ ok: false, reasons: [{ code: 'migrations', message: 'Still migrating.' }], notes: [] })
  expect(health.live().ok).toBe(true)
})

test('who does not answer in time is not waited for, and all who ask meanwhile share the answer', async () => {
  const clock = createFakeClock()
  let times = 0
  const readiness = (): Promise<unknown> => {
    times += 1
    return new Promise(() => {})
  }
  const health = createHealth({ consumers: [consumer({ ageMs: 1, readiness })], timeoutMs: 500, clock })
  const answers = Promise.all([health.ready(), health.ready()])
  await clock.advance(500)
  expect(await answers).toMatchObject([{ ok: false, reasons: [{ code: 'unavailable' }] }, { ok: false }])
  expect(times).toBe(1)
})

test('only GET and HEAD of its two paths are answered, and nothing may cache it', async () => {
  const { handler } = createHealth({})
  expect((await handler(at('/readyz'))).headers.get('cache-control')).toBe('no-store')
  const head = await handler(at('/livez', 'HEAD'))
  expect({ status: head.status, text: await head.text() }).toEqual({ status: 200, text: '' })
  expect((await handler(at('/livez', 'POST'))).status).toBe(405)
  expect((await handler(at('/metrics'))).status).toBe(404)
})
