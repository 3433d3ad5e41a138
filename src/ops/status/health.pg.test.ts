import { expect, test } from 'vitest'
import { consumerFixture, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { outboxFixture, videos as ownVideos } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { pauseOutbox } from '../../outbox/operate/pause.ts'
import { connect } from '../../postgres/connect.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { createHealth, type Health } from './health.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const lifetime = (stop: AbortController): { stopping: AbortSignal; aborting: AbortSignal } => ({
  stopping: stop.signal,
  aborting: new AbortController().signal,
})

async function asked(health: Health, path: string, method = 'GET'): Promise<{ status: number; codes: string[] }> {
  const response = await health.handler(new Request(`http://localhost${path}`, { method }))
  const text = await response.text()
  const { reasons } = (text === '' ? { reasons: [] } : JSON.parse(text)) as { reasons: { code: string }[] }
  return { status: response.status, codes: reasons.map(({ code }) => code) }
}

test('readiness falls while the lag is over its limit, and rises when the broker has taken what waited', async () => {
  const fixture = await outboxFixture(db)
  const broker = memory()
  let isDown = false
  const outage = { status: 'unavailable', error: new Error('down') } as const
  const transport = {
    maxBytes: broker.maxBytes,
    publish: async (...args: Parameters<typeof broker.publish>) =>
      isDown ? args[0].map(() => outage) : await broker.publish(...args),
  }
  const relay = fixture.relay(transport)
  const health = createHealth({ relay, maxLagMs: 100 })
  expect(await asked(health, '/readyz')).toEqual({ status: 503, codes: ['not-running', 'leases'] })
  expect(await asked(health, '/livez')).toEqual({ status: 200, codes: [] })
  const stop = new AbortController()
  const running = relay.run(lifetime(stop))
  await eventually(async () => expect(await asked(health, '/readyz')).toEqual({ status: 200, codes: [] }))

  isDown = true
  await fixture.publish('v1', 'one')
  await eventually(async () => expect((await asked(health, '/readyz')).codes).toContain('lag'))
  expect((await asked(health, '/readyz')).status).toBe(503)
  expect((await asked(health, '/livez')).status).toBe(200)

  isDown = false
  await eventually(async () => expect(await asked(health, '/readyz')).toEqual({ status: 200, codes: [] }))
  expect(broker.published).toHaveLength(1)
  stop.abort()
  await running
  expect((await asked(health, '/readyz')).codes).toContain('not-running')
})

test('readiness stays while events wait for their date or for an operator', async () => {
  const fixture = await outboxFixture(db)
  const { outbox } = fixture
  const notBefore = new Date(Date.now() + 3_600_000)
  await transaction(db, (tx) => outbox.add(tx, ownVideos.VideoPublished, 'later', { title: 'x' }, { notBefore }))
  await pauseOutbox({ db, outbox, aggregateType: 'video', aggregateId: 'held', actor: 'ada' })
  const stop = new AbortController()
  const relay = fixture.relay(memory())
  const running = relay.run(lifetime(stop))
  await fixture.publish('held', 'one')
  await eventually(async () => expect((await fixture.dispatch()).map(({ state }) => state)).toEqual([1, 1]))
  await eventually(async () =>
    expect(await asked(createHealth({ relay, maxLagMs: 0 }), '/readyz')).toEqual({ status: 200, codes: [] }),
  )
  stop.abort()
  await running
})

test('a consumer is not ready before it runs and while it is paused, by its own word', async () => {
  const fixture = await consumerFixture(db)
  const catalog = fixture.consumer().on(videos.VideoPublished, async () => {})
  const health = createHealth({ consumers: [catalog], checks: { cache: async () => undefined } })
  expect(await asked(health, '/readyz')).toEqual({ status: 503, codes: ['not-running', 'unknown'] })
  await fixture.publish(published('a', 1))
  const stop = fixture.start(catalog)
  await eventually(async () => expect(await asked(health, '/readyz')).toEqual({ status: 200, codes: [] }))
  await fixture.query(`update $schema.consumer set paused = true`)
  expect(await asked(health, '/readyz')).toEqual({ status: 503, codes: ['paused'] })
  await stop()
})

test('a database out of reach makes it not ready, without its address, and leaves it alive', async () => {
  const fixture = await outboxFixture(db)
  const gone = connect({ url: 'postgres://ann:secret@127.0.0.1:1/nowhere', max: 1 })
  const relay = fixture.relay(memory(), { db: gone })
  const health = createHealth({ relay, timeoutMs: 3_000 })
  const response = await health.handler(new Request('http://localhost/readyz'))
  const text = await response.text()
  expect({ status: response.status, text }).toMatchObject({ status: 503, text: expect.stringContaining('"unavailable"') })
  expect(text).not.toMatch(/secret|127\.0\.0\.1/)
  expect((await asked(health, '/livez')).status).toBe(200)
  await gone.close()
})
