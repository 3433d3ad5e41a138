import { expect, test } from 'vitest'
import { published, videos } from '../../test/setup/consumer-fixture.ts'
import { at, dead, parked, site, type Site } from '../../test/setup/dashboard-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { eventually } from '../testing/kit/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
/** Of those that change nothing. */
const untouched = await site(db)

test('a stream is paused and goes on, in the audit log under the name of who did it', async () => {
  const { post, audited } = await site(db)
  const stream = { service: 'shop', aggregateType: 'video', reason: 'a bad deploy' }
  expect((await post('pause-stream', stream)).body).toEqual({ text: 'Paused: stream video.', done: true })
  expect((await post('pause-stream', stream)).body).toEqual({ text: 'stream video was paused already.', done: false })
  expect((await post('resume-stream', stream)).body).toMatchObject({
    text: expect.stringContaining('Resumed: stream video'),
    done: true,
  })
  expect((await post('resume-stream', stream)).body).toMatchObject({ done: false })
  expect(await audited()).toMatchObject([
    { actor: 'ada', action: 'outbox.pause', details: { reason: 'a bad deploy' } },
    { actor: 'ada', action: 'outbox.resume' },
  ])
})

test('everything is paused and goes on', async () => {
  const { post, query } = await site(db)
  const everything = { service: 'shop', all: true }
  expect((await post('pause-stream', everything)).body).toEqual({ text: 'Paused: everything.', done: true })
  expect(await query('select aggregate_type, aggregate_id from $schema.outbox_pause')).toEqual([
    { aggregate_type: '', aggregate_id: '' },
  ])
  expect((await post('resume-stream', everything)).body).toEqual({ text: 'Resumed: everything.', done: true })
  expect((await post('resume-stream', everything)).body).toEqual({ text: 'everything was not paused.', done: false })
})

test('a consumer, or one aggregate of it, is paused and goes on', async () => {
  const { post, query } = await dead(db)
  const consumer = { service: 'shop', consumer: 'catalog' }
  expect((await post('pause-consumer', consumer)).body).toEqual({ text: 'Paused: consumer catalog.', done: true })
  expect(await query('select paused_by from $schema.consumer')).toEqual([{ paused_by: 'ada' }])
  expect((await post('resume-consumer', consumer)).body).toMatchObject({ done: true })
  const aggregate = { ...consumer, aggregateType: 'video', aggregateId: 'v2' }
  expect((await post('pause-consumer', aggregate)).body).toEqual({ text: 'Paused: video v2 of consumer catalog.', done: true })
  expect((await post('resume-consumer', aggregate)).body).toMatchObject({ done: true })
  expect(await post('pause-consumer', { ...consumer, aggregateType: 'video' })).toMatchObject({ status: 400 })
  expect(await post('pause-consumer', { ...consumer, consumer: 'nobody' })).toMatchObject({ status: 404 })
})

test('a parked event is tried again, or skipped', async () => {
  const { post, eventId, query } = await parked(db)
  const one = { service: 'shop', filter: { eventId } }
  expect((await post('redrive-parked', one)).body).toEqual({ text: 'Due again: 1 event.', done: true })
  expect((await post('redrive-parked', one)).body).toEqual({ text: 'No parked event fits.', done: false })
  const skipped = await parked(db)
  const all = { service: 'shop', filter: { all: true } }
  expect((await skipped.post('skip-parked', all)).body).toEqual({ text: 'Skipped: 1 event.', done: true })
  expect(await query('select action from $schema.audit_log')).toEqual([{ action: 'outbox.redrive' }])
  expect(await skipped.query('select action from $schema.audit_log')).toEqual([{ action: 'outbox.skip' }])
})

test('what dies after somebody looked at its group is not discarded with it', async () => {
  const here = await dead(db)
  const { groups } = (await here.get('/api/letters?service=shop')).body as { groups: { newestId: string }[] }
  const stop = here.start(here.consumer({ maxAttempts: 1 }).on(videos.VideoPublished, async () => {}))
  await here.publish({ ...published('v2', 1), body: Buffer.from('no json') })
  await eventually(async () => (await here.count('dead_letter')) === 2)
  await stop()
  const filter = { consumer: 'catalog', upTo: groups[0]?.newestId }
  expect((await here.post('discard-letters', { service: 'shop', filter })).body).toEqual({
    text: 'Discarded 1 dead letter.',
    done: true,
  })
  expect(await here.query('select aggregate_id, state from $schema.dead_letter order by id')).toEqual([
    { aggregate_id: 'v1', state: 'discarded' },
    { aggregate_id: 'v2', state: 'dead' },
  ])
})

test('a dead letter is given another life, or given up', async () => {
  const here = await dead(db)
  const one = { service: 'shop', filter: { ids: [here.id] }, reason: 'mended' }
  expect((await here.post('redrive-letters', one)).body).toEqual({ text: 'Redriving 1 dead letter.', done: true })
  expect(await here.get(`/api/letter?service=shop&id=${here.id}`)).toMatchObject({ body: { letter: { state: 'redriving' } } })
  expect((await here.post('discard-letters', one)).body).toEqual({ text: 'Discarded 1 dead letter.', done: true })
  expect((await here.post('discard-letters', one)).body).toMatchObject({ done: false })
  expect(await here.audited()).toMatchObject([
    { actor: 'ada', action: 'dlq.redrive', details: { reason: 'mended' } },
    { actor: 'ada', action: 'dlq.discard' },
  ])
})

let broken: Promise<Site> | undefined
test.each<[string, unknown, string]>([
  ['discard-letters', { service: 'shop' }, 'filter has to be an object'],
  ['discard-letters', { service: 'shop', filter: {} }, 'it names nothing'],
  ['discard-letters', { service: 'shop', filter: { all: 'true' } }, 'filter.all cannot be'],
  ['discard-letters', { service: 'shop', filter: { all: true, consumer: 'catalog' } }, 'stands alone'],
  ['discard-letters', { service: 'shop', filter: { ids: [] } }, 'filter.ids cannot be'],
  ['discard-letters', { service: 'shop', filter: { ids: [7] } }, 'filter.ids cannot be'],
  ['discard-letters', { service: 'shop', filter: { consumer: '' } }, 'it has no value'],
  ['discard-letters', { service: 'shop', filter: { upTo: '9' } }, 'names nothing by itself'],
  ['discard-letters', { service: 'shop', filter: { consumers: 'catalog' } }, 'Did you mean "consumer"?'],
  ['redrive-parked', { service: 'shop', filter: { aggregateId: 'v1' } }, 'the type is missing'],
  ['pause-stream', { service: 'shop', aggregateType: ['video'] }, '"aggregateType" has to be a text'],
  ['pause-stream', { service: 'shop' }, '"aggregateType" is missing'],
  ['pause-stream', { service: 'shop', all: 'true' }, '"aggregateType" is missing'],
  ['pause-stream', { service: 'shop', all: true, aggregateType: 'video' }, '"all" stands alone'],
  ['pause-stream', [], 'The body has to be an object'],
  ['pause-stream', { service: 'shop', aggregateType: 'video', reason: 'x'.repeat(501) }, '500 characters at most'],
  ['pause-stream', { service: 'shop', aggregateType: 'a\u0000b' }, 'The database refuses that'],
])('%s of %j is refused: a forgotten field never means all', async (action, body, message) => {
  const { post, audited } = await (broken ??= dead(db))
  expect(await post(action, body)).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringContaining(message) } },
  })
  expect(await audited()).toHaveLength(0)
})

test('what is no action is not found, and a large body is not read', async () => {
  const { post, dashboard } = untouched
  expect(await post('constructor', { service: 'shop' })).toMatchObject({ status: 404 })
  expect(await post('pause-stream', { service: 'shop', reason: 'x'.repeat(70_000) })).toMatchObject({ status: 413 })
  const asked = new Request(`${at}/api/overview`, { method: 'DELETE' })
  expect((await dashboard.handler(asked)).status).toBe(405)
})
