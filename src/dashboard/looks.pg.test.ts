import { expect, test } from 'vitest'
import { consumerFixture, videos } from '../../test/setup/consumer-fixture.ts'
import { dead, parked, site } from '../../test/setup/dashboard-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { connect } from '../postgres/connect.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { transaction } from '../postgres/transaction/transaction.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
/** Of those that change nothing. */
const untouched = await site(db)

test('everything at one glance, with what is over its limit', async () => {
  const { get } = await parked(db)
  expect(await get('/api/overview')).toMatchObject({
    status: 200,
    body: {
      viewer: { name: 'ada', mayAct: true },
      payloads: false,
      services: [{ name: 'shop', status: { outbox: { parked: 1 } }, findings: [{ problem: 'parked' }] }],
    },
  })
})

test('limits of its own decide what is too much', async () => {
  const { get } = await parked(db, { limits: { maxParked: 1 } })
  expect(await get('/api/overview')).toMatchObject({ body: { services: [{ findings: [] }] } })
})

test('markers are due by the TTL of their service', async () => {
  const fixture = await consumerFixture(db)
  const { schema } = fixture
  await db.query(`insert into ${schema}.command_marker (created_at, principal, request_id, command, fingerprint)
    values (now() - interval '20 hours', 'ann', 'r1', 'Teach', '\\x00')`)
  const services = [
    { name: 'an hour', db, schema },
    { name: 'a day', db, schema, markerTtlMs: 86_400_000 },
  ]
  const { get } = await site(db, { services }, fixture)
  expect(await get('/api/overview')).toMatchObject({
    body: { services: [{ findings: [{ problem: 'cleanup-lag' }] }, { findings: [] }] },
  })
})

test('a database that is away does not hide the others, and a trace goes as far as it can', async () => {
  const away = connect({ url: 'postgres://app:secret@127.0.0.1:1/shop', max: 1 })
  const { schema, outbox } = await consumerFixture(db)
  const { get } = await site(db, {
    services: [
      { name: 'shop', db, schema },
      { name: 'away', db: away },
    ],
  })
  const { id } = await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' }))
  const overview = await get('/api/overview')
  expect(overview.body).toMatchObject({
    services: [{ status: { service: 'test' } }, { name: 'away', error: { code: 'UNAVAILABLE' } }],
  })
  expect(JSON.stringify(overview.body)).not.toContain('secret')
  const found = await get(`/api/trace?id=${id}`)
  expect(found.body).toMatchObject({
    events: [{ eventId: id }],
    timeline: expect.arrayContaining([expect.objectContaining({ service: 'shop' })]),
    notes: [expect.stringContaining('away was not looked at')],
  })
  await away.close()
})

test('a database that is silent is given up after a while', async () => {
  const clock = createFakeClock()
  const silent = { ...db, query: () => new Promise<never>(() => {}) }
  const { get } = await site(db, { services: [{ name: 'silent', db: silent }], clock, timeoutMs: 5_000 })
  const asked = get('/api/overview')
  await eventually(() => clock.sleepers() > 0)
  await clock.advance(5_000)
  expect((await asked).body).toMatchObject({
    services: [{ error: { code: 'UNAVAILABLE', message: expect.stringContaining('5000 ms') } }],
  })
})

test('a database that answers each question late does not keep the others waiting', async () => {
  const clock = createFakeClock()
  const { schema } = await consumerFixture(db)
  let sleeping = 0
  const query = async (...given: Parameters<typeof db.query>): ReturnType<typeof db.query> => {
    const answer = await db.query(...given)
    sleeping += 1
    await clock.sleep(3_000)
    sleeping -= 1
    return answer
  }
  const { get } = await site(db, { services: [{ name: 'slow', db: { ...db, query }, schema }], clock })
  let told: unknown
  const asked = get('/api/overview').then(({ body }) => void (told = body))
  await eventually(async () => {
    // Time passes only while a question sleeps, however long the real ones take.
    if (sleeping > 0) await clock.advance(1_000)
    return told !== undefined
  })
  await asked
  expect(told).toMatchObject({ services: [{ error: { code: 'TIMEOUT', message: expect.stringContaining('5000 ms') } }] })
})

test('those who look at the same time cost one look', async () => {
  const { schema } = await consumerFixture(db)
  let asked = 0
  const counting = { ...db, query: (...given: Parameters<typeof db.query>) => ((asked += 1), db.query(...given)) }
  const { get } = await site(db, { services: [{ name: 'shop', db: counting, schema }] })
  await get('/api/overview')
  const once = asked
  await Promise.all([get('/api/overview'), get('/api/overview'), get('/api/overview')])
  expect(asked).toBe(2 * once)
  await get('/api/overview')
  expect(asked).toBe(3 * once)
})

test('a dead letter comes without its body, its attributes or a guess at them', async () => {
  const { get, id } = await dead(db)
  const groups = await get('/api/letters?service=shop')
  expect(groups.body).toMatchObject({
    groups: [{ consumer: 'catalog', reason: 'invalid', count: 1 }],
    letters: [{ id }],
    more: false,
  })
  expect(await get('/api/letters?service=shop&reason=failed')).toMatchObject({ body: { groups: [], letters: [] } })
  const { body } = await get(`/api/letter?service=shop&id=${id}`)
  expect(body).toMatchObject({ letter: { id }, plan: { verdict: 'apply' } })
  expect(JSON.stringify(body)).not.toContain('secret')
  expect(body).not.toHaveProperty('letter.attributes')
})

test('asked for, payloads are shown', async () => {
  const { get, id } = await dead(db, { payloads: true })
  expect((await get(`/api/letter?service=shop&id=${id}`)).body).toMatchObject({
    letter: { bodyText: 'secret', attributes: { aggregate_id: 'v1' } },
  })
})

test('of a large body the beginning is shown, and how large it is', async () => {
  const { get, id, db: own, schema } = await dead(db, { payloads: true })
  await own.query(`update ${schema}.dead_letter set body = repeat('x', 100000)::bytea`)
  const { letter } = (await get(`/api/letter?service=shop&id=${id}`)).body as { letter: { bodyText: string; bodyBytes: number } }
  expect({ shown: letter.bodyText.length, bytes: letter.bodyBytes }).toEqual({ shown: 65_536, bytes: 100_000 })
})

test('the journey of a parked event says why it stands still, and promises no next attempt', async () => {
  const { get, eventId } = await parked(db)
  const { timeline } = (await get(`/api/trace?id=${eventId}`)).body as { timeline: { text: string }[] }
  expect(timeline.at(-1)?.text).toBe(
    'video v1 version 1 not published: PARKED, 1 attempts, no relay works its lane, memory: the broker refuses this message.',
  )
})

test('the doctor names what is parked', async () => {
  const { get } = await parked(db)
  expect((await get('/api/doctor?service=shop')).body).toMatchObject({
    findings: expect.arrayContaining([expect.objectContaining({ problem: 'parked' })]),
  })
})

test.each([
  ['/api/parked', 400, 'service'],
  ['/api/parked?service=other', 404, 'no service "other"'],
  ['/api/letters?service=shop&state=alive', 400, 'alive'],
  ['/api/letter?service=shop&id=9', 404, 'no dead letter 9'],
  ['/api/letter?service=shop&id=1;drop', 400, 'not the number'],
  ['/api/trace?id=', 400, 'id'],
  ['/api/toString', 404, 'There is no api/toString'],
  ['/../package.json', 404, 'package.json'],
  ['/page/../dashboard.ts', 404, 'dashboard.ts'],
  ['/%2e%2e/answers.ts', 404, ''],
])('%s is answered by %i', async (place, status, message) => {
  const { get } = untouched
  expect(await get(place)).toMatchObject({ status, body: { error: { message: expect.stringContaining(message) } } })
})

test('every answer forbids frames, foreign scripts, caches and guesses', async () => {
  const { get } = untouched
  for (const place of ['/', '/style.css', '/api/overview', '/api/nothing']) {
    const { headers } = await get(place)
    expect(Object.fromEntries(headers)).toMatchObject({
      'content-security-policy': "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
    })
  }
})
