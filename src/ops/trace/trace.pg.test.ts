import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import {
  accounts,
  consumerFixture,
  deposited,
  mails,
  videos,
  type ConsumerFixture,
} from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { command } from '../../command/model/command.ts'
import { createCommands, type Commands } from '../../command/commands.ts'
import { reject } from '../../command/model/rejection.ts'
import type { Consumer } from '../../consumer/consumer.ts'
import { newId } from '../../core/event/id.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { trace } from './trace.ts'
import type { Trace, TracedService } from './report.ts'
import { traceTimeline } from './timeline.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const publishVideo = command('PublishVideo', {
  input: z.object({ id: z.string(), title: z.string() }),
  aggregate: ({ id }) => ({ type: 'video', id }),
  storeRejections: true,
  execute: async (_tx, { id, title }, { emit }) => {
    if (title === '') throw reject('no-title')
    emit(videos.VideoPublished, id, { title }, { headers: { team: 'films' } })
    return {}
  },
})

interface World {
  readonly owner: ConsumerFixture
  readonly reader: ConsumerFixture
  readonly commands: Commands
  readonly catalog: Consumer
  readonly services: readonly TracedService[]
  readonly published: () => Promise<number>
}

/** An owner with commands and a relay, and a reader that projects videos and mails about each; each in a schema of its own. */
async function world(): Promise<World> {
  const owner = await consumerFixture(db)
  const reader = await consumerFixture(db, owner.broker)
  const catalog = reader
    .consumer({ streams: [videos], maxAttempts: 2 })
    .project(videos, { table: `${reader.schema}.video_view`, key: 'video_id', set: ({ data }) => ({ title: data.title }) })
    .on(videos.VideoPublished, async ({ data, aggregateId }, { emit }) => {
      if (data.title === 'poison') throw new Error('it is poison')
      emit(mails.MailRequested, aggregateId, { to: 'ada' })
    })
  return {
    owner,
    reader,
    catalog,
    commands: createCommands({ db, schema: owner.schema, outbox: owner.outbox }),
    services: [
      { name: 'films', db, schema: owner.schema },
      { name: 'catalog', db, schema: reader.schema, consumers: [catalog] },
    ],
    published: () => createRelay({ db, outbox: owner.outbox, transport: owner.broker, name: 'relay-a' }).once(),
  }
}

async function publish({ commands }: World, requestId: string, title = 'Alien', principal = 'ann'): Promise<void> {
  const outcome = await commands.run(publishVideo, { principal, requestId, input: { id: `video-${requestId}`, title } })
  expect(outcome.status).toBe('executed')
}

const states = ({ events }: Trace): string[] => events.flatMap((event) => event.deliveries.map(({ state }) => state))

describe('a request', () => {
  test('is followed from its marker over the broker to the projection and to what was emitted, across services', async () => {
    const all = await world()
    const stop = all.reader.start(all.catalog)
    await publish(all, 'r1')
    await all.published()
    await eventually(async () => (await all.reader.count('video_view')) === 1)
    await stop()
    const found = await trace(all.services, { id: 'r1', principal: 'ann' })
    expect(found).toMatchObject({
      request: { service: 'films', command: 'PublishVideo', principal: 'ann', requestId: 'r1', rejected: false },
      events: [
        {
          recorded: {
            service: 'films',
            aggregateType: 'video',
            aggregateId: 'video-r1',
            version: '1',
            eventType: 'VideoPublished',
          },
          dispatch: undefined,
          publishes: [{ relay: 'relay-a', attempts: 1, messageId: expect.any(String) }],
          deliveries: [
            {
              service: 'catalog',
              consumer: 'catalog',
              state: 'applied',
              projections: [{ table: `${all.reader.schema}.video_view`, version: '1', deleted: false }],
            },
          ],
        },
        {
          recorded: { service: 'catalog', aggregateType: 'mail', eventType: 'MailRequested' },
          causedBy: { consumer: 'catalog', eventId: expect.any(String) },
          dispatch: { state: 'PENDING', attempts: 0 },
          publishes: [],
        },
      ],
      notes: [],
    })
    const said = traceTimeline(found).map(({ service, text }) => `${service}: ${text}`)
    // By causes: the receipt of a publish may be written when a quick consumer is done already.
    const expected = [
      'films: PublishVideo of ann, request r1: committed',
      expect.stringMatching(/^films: VideoPublished \S+: video video-r1, version 1, for video.events$/),
      expect.stringMatching(/^films: video video-r1 version 1 published by relay-a, attempt 1, message /),
      expect.stringMatching(/^catalog: video video-r1 version 1 applied by catalog/),
      `catalog: ${all.reader.schema}.video_view has version 1`,
      expect.stringMatching(
        /^catalog: MailRequested \S+: mail video-r1, version 1, for mail.events, emitted by catalog for event /,
      ),
      expect.stringContaining('mail video-r1 version 1 not published: PENDING, no relay works its lane'),
    ]
    expect(said).toEqual(expected)
    expect(JSON.stringify(found)).not.toContain('Alien')
  })

  test('is found from one of its events, and the event by its id alone', async () => {
    const all = await world()
    await publish(all, 'r2')
    const [event] = (await trace(all.services, { id: 'r2', principal: 'ann' })).events
    expect(event).toMatchObject({ dispatch: { state: 'PENDING' }, publishes: [], deliveries: [] })
    const found = await trace(all.services, { id: event?.eventId ?? '' })
    expect(found).toMatchObject({ request: { requestId: 'r2', principal: 'ann' }, events: [{ eventId: event?.eventId }] })
  })

  test('of several principals asks for one, and shows that one only', async () => {
    const all = await world()
    await publish(all, 'same')
    await publish(all, 'same', 'Brazil', 'bob')
    await expect(trace(all.services, { id: 'same' })).rejects.toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringMatching(/ann, bob|bob, ann/),
    })
    for (const [principal, version] of [
      ['ann', '1'],
      ['bob', '2'],
    ] as const) {
      const found = await trace(all.services, { id: 'same', principal })
      expect(found.events.map(({ recorded }) => recorded?.version)).toEqual([version])
    }
    await publish(all, 'once')
    expect((await trace(all.services, { id: 'once' })).request).toMatchObject({ principal: 'ann', requestId: 'once' })
  })

  test('that was rejected has no events, and the trace says why', async () => {
    const all = await world()
    await all.commands.run(publishVideo, { principal: 'ann', requestId: 'no', input: { id: 'v', title: '' } })
    expect(await trace(all.services, { id: 'no', principal: 'ann' })).toMatchObject({
      request: { rejected: true },
      events: [],
      notes: [expect.stringContaining('rejected')],
    })
  })

  test('whose marker is gone is found by what its events carry', async () => {
    const all = await world()
    await publish(all, 'old')
    await all.owner.query('delete from $schema.command_marker')
    expect(await trace(all.services, { id: 'old', principal: 'ann' })).toMatchObject({
      request: undefined,
      events: [{ recorded: { aggregateId: 'video-old' } }],
      notes: [expect.stringContaining('marker')],
    })
  })

  test('that nobody knows is said to be unknown, with where was looked', async () => {
    const all = await world()
    const unknown = { code: 'NOT_FOUND', message: expect.stringContaining(`films (schema ${all.owner.schema}), catalog`) }
    await expect(trace(all.services, { id: 'never', principal: 'ann' })).rejects.toMatchObject(unknown)
    await expect(trace(all.services, { id: newId() })).rejects.toMatchObject(unknown)
  })
})

describe('an event', () => {
  test('that a consumer has not seen yet is unseen, one that failed is failing or dead with its reason', async () => {
    const all = await world()
    const stop = all.reader.start(all.catalog)
    await all.reader.settled(0)
    await publish(all, 'good')
    await publish(all, 'bad', 'poison')
    await eventually(async () => (await all.reader.count('consumer')) === 1)
    expect(states(await trace(all.services, { id: 'bad', principal: 'ann' }))).toEqual(['unseen'])
    await all.published()
    await eventually(async () => (await all.reader.count('dead_letter')) === 1)
    await stop()
    // A relay writes its receipt when the broker has the event, so a consumer may be done before.
    await all.owner.query(`update $schema.outbox_receipt set published_at = published_at + interval '1 hour'`)
    const found = await trace(all.services, { id: 'bad', principal: 'ann' })
    expect(found.events[0]?.deliveries).toMatchObject([
      { state: 'dead', attempts: 2, error: 'it is poison', deadLetter: { reason: 'failed' } },
    ])
    expect(traceTimeline(found).at(-2)?.text).toMatch(
      /given up by catalog, dead letter \d+ \(failed\), 2 failed attempts.*it is poison$/,
    )
  })

  test('that came before its predecessor waits, and is found although no outbox that is looked at has it', async () => {
    const fixture = await consumerFixture(db)
    const stop = fixture.start(fixture.consumer().on(accounts.Deposited, async () => {}))
    const early = deposited('a1', 3, 5)
    await fixture.publish(early)
    await eventually(async () => (await fixture.count('inbox_message')) === 1)
    await stop()
    const found = await trace([{ db, schema: fixture.schema }], { id: early.attributes['event_id'] ?? '' })
    expect(found).toMatchObject({ request: undefined, events: [{ recorded: undefined, deliveries: [{ state: 'waiting' }] }] })
  })
})
