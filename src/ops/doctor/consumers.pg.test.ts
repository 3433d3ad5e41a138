import { expect, test } from 'vitest'
import { consumerFixture, videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { discardDeadLetters } from '../../consumer/operate/discard.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { doctorConsumers } from './consumers.ts'
import { createHealth } from '../status/health.ts'
import { status } from '../status/status.ts'
import { statusText } from '../../cli/commands/status-text.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('a deploy that is half done is told by doctor, status and readiness, and so is what rests for nobody', async () => {
  const fixture = await consumerFixture(db)
  const { query, schema } = fixture
  const old = fixture.consumer({ streams: [videos] }).on(videos.VideoPublished, () => undefined)
  const fresh = fixture.consumer().on(videos.VideoPublished, () => undefined)
  const stop = fixture.start(old)
  await eventually(async () => (await fixture.count('consumer_reader')) === 1)
  expect(await doctorConsumers(db, schema)).toEqual([])
  expect((await old.readiness()).notes).toEqual([])
  const stopFresh = fixture.start(fresh)
  await eventually(async () => (await fixture.count('consumer_reader')) === 2)
  const [mixed, ...others] = await doctorConsumers(db, schema)
  expect(others).toEqual([])
  expect(mixed?.problem).toBe('mixed-versions')
  expect(mixed?.text).toMatch(
    /^Mixed versions: .* consumer catalog .*: video \(VideoPublished, VideoRemoved\); .*: video \(.*\), account \(BalanceSet, Deposited, Renamed\)$/,
  )
  expect((await old.readiness()).notes).toMatchObject([
    { code: 'mixed-versions', message: expect.stringContaining('in 2 versions') },
  ])
  expect((await createHealth({ consumers: [old] }).ready()).notes).toMatchObject([{ code: 'mixed-versions' }])
  expect((await status({ db, schema })).consumers).toMatchObject([{ instances: { running: 2, versions: 2 }, atRest: [] }])
  await query(
    `insert into $schema.inbox_message (key, lane, state, consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, message_id, attributes, body, published_at, unknown)
     select 1, 1, 4, 'catalog', 1, gen_random_uuid(), i.type, 'x', 1, 't', 'm', jsonb_build_object('event_type', i.event), '', clock_timestamp(), i.unknown
       from (values ('account', 'Deposited', 'stream'), ('account', 'Deposited', 'type'), ('mail', 'Sent', 'stream'), ('video', 'Rated', 'type')) as i (type, event, unknown)`,
  )
  const atRest = [
    { aggregateType: 'mail', eventType: 'Sent', messages: 1 },
    { aggregateType: 'video', eventType: 'Rated', messages: 1 },
  ]
  await Promise.all([stop(), stopFresh()])
  const stopAgain = fixture.start(fixture.consumer().on(videos.VideoPublished, () => undefined))
  await eventually(async () => (await fixture.count('consumer_reader')) === 1)
  expect((await status({ db, schema })).consumers).toMatchObject([{ instances: { running: 1, versions: 1 }, atRest }])
  expect(await doctorConsumers(db, schema)).toMatchObject([
    { problem: 'unread', text: expect.stringContaining('1 events of mail Sent') },
    { problem: 'unread', text: expect.stringContaining('1 events of video Rated') },
  ])
  await stopAgain()
})

test('the doctor finds dead letters whose event has taken effect, and what it advises closes them', async () => {
  const { schema, query } = await consumerFixture(db)
  await query(
    `insert into $schema.dead_letter (consumer, generation, event_id, event_type, topic, reason, error, attempts, message_id, attributes, body, published_at, first_failed_at)
     select 'catalog', 1, gen_random_uuid(), 'Deposited', 'bank.events', 'failed', 'broken', 1, 'm', '{}', '', clock_timestamp(), clock_timestamp() from generate_series(1, 3)`,
  )
  expect(await doctorConsumers(db, schema)).toEqual([])
  await query(
    `insert into $schema.inbox (consumer, generation, event_id, source) select consumer, generation, event_id, 'account' from $schema.dead_letter where id < 3`,
  )
  const [finding, ...others] = await doctorConsumers(db, schema)
  expect(others).toEqual([])
  expect(finding).toMatchObject({ problem: 'letter-applied' })
  expect(finding?.text).toMatch(/^2 dead letters are of events that have taken effect.*waybill dlq discard --id 1,2 --yes/)
  await discardDeadLetters({ db, schema, filter: { ids: ['1', '2'] }, actor: 'ada' })
  expect(await doctorConsumers(db, schema)).toEqual([])
})

test('the doctor finds messages that were refused within a day, and status counts those that are kept', async () => {
  const { schema, query } = await consumerFixture(db)
  await query(
    `insert into $schema.refused_message (consumer, reason, slot, topic, message_id, attributes, body, body_bytes, published_at, refused_at)
     select 'catalog', 'forged', n, 't', 'm', '{}', '', 0, clock_timestamp(), clock_timestamp() - n * interval '10 hours' from generate_series(1, 4) n`,
  )
  await query("insert into $schema.consumer (name) values ('catalog')")
  const found = await doctorConsumers(db, schema)
  expect(found).toMatchObject([{ problem: 'messages-refused' }])
  expect(found[0]?.text).toContain('refused messages within a day, forged; 2 of them are kept: waybill refused --each')
  const report = await status({ db, schema })
  expect(report.consumers).toMatchObject([{ refused: [{ reason: 'forged', count: 4 }] }])
  expect(statusText(report, undefined)).toContain('refused messages that are kept: forged 4')
  await query(`update $schema.refused_message set refused_at = refused_at - interval '1 day'`)
  expect(await doctorConsumers(db, schema)).toEqual([])
})
