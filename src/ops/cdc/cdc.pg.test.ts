import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { everybodyEnded } from '../../../test/setup/everybody-ended.ts'
import { outboxFixture, videos, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { logicalDatabase } from '../../../test/setup/logical-database.ts'
import { readInserts } from '../../../test/setup/pgoutput.ts'
import { createOutboxRetention, type OutboxRetention } from '../../outbox/operate/retention.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { startPostgres } from '../../testing/servers/postgres.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { findProgram } from '../../testing/process/find-program.ts'
import { fromRecord } from '../../transport/kafka/client/wire/event-records.ts'
import { memory } from '../../transport/memory/memory.ts'
import { cdcPublication } from './slot.ts'
import { cdcStatus, giveUpSlot, switchCdcOff, switchCdcOn } from './cdc.ts'
import { outboxStatus } from '../status/outbox-status.ts'

const { url, pool, db } = await logicalDatabase()
const actor = 'ada'

/** The properties that the guide tells people to use. */
const guide = await readFile(new URL('../../../docs/guides/cdc.md', import.meta.url), 'utf8')
const properties = new Map(
  (/```properties\n(.*?)```/s.exec(guide)?.[1] ?? '')
    .trim()
    .split('\n')
    .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)] as const),
)

interface Message {
  readonly topic: string
  readonly key: string | undefined
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** What the event router makes of a row, by the guide's properties. */
function routed(row: Readonly<Record<string, string>>): Message {
  const router = (name: string): string => properties.get(`transforms.outbox.${name}`) ?? ''
  const column = (name: string): string => row[name] ?? ''
  const headers: Record<string, string> = {}
  for (const placement of router('table.fields.additional.placement').split(',')) {
    const [name = '', place, alias = name] = placement.split(':')
    if (place === 'header') headers[alias] = name === 'occurred_at' ? isoTime(column(name)) : column(name)
  }
  return {
    topic: router('route.topic.replacement').replace('${routedByValue}', column(router('route.by.field'))),
    key: column(router('table.field.event.key')),
    headers,
    body: column(router('table.field.event.payload')),
  }
}

/** What a consumer gets of it. */
function received({ headers, ...rest }: Message): Message {
  const record = { offset: 0n, timestampMs: 0, key: null, value: null, headers: Object.entries(headers) }
  return { ...rest, headers: fromRecord(record, { topic: rest.topic, partition: 0 }).attributes }
}

/** `2026-01-02 03:04:05.6+00` as connectors write it, with all six decimals. */
function isoTime(text: string): string {
  const [, date, time, decimals = ''] = /^(\S+) (\d\d:\d\d:\d\d)(?:\.(\d+))?\+00$/.exec(text) ?? []
  return `${date}T${time}.${decimals.padEnd(6, '0')}Z`
}

const readSlot = (slot: string, publication: string): Promise<Record<string, string>[]> => readInserts(pool, slot, publication)

let slots = 0
const newSlot = (): string => `waybill_test_${(slots += 1)}`

async function addVariety({ outbox }: OutboxFixture): Promise<void> {
  await transaction(db, async (tx) => {
    await outbox.add(
      tx,
      videos.VideoPublished,
      'v 1',
      { title: 'one ☃' },
      { headers: { traceparent: '00-ab-cd-01', version: 'mine' } },
    )
    await outbox.add(tx, videos.VideoPublished, 'v 1', { title: 'two' })
    await outbox.add(tx, videos.VideoRemoved, 'v 1')
    await outbox.add(tx, videos.VideoPublished, 'ünï"}', { title: '{,"\\' })
  })
}

test('mapped as the guide says, what a plain pgoutput client reads reaches a consumer as what a relay sends', async () => {
  const fixture = await outboxFixture(db)
  const slot = newSlot()
  await switchCdcOn({ db, outbox: fixture.outbox, slot, actor })
  await addVariety(fixture)
  expect(await fixture.dispatch()).toEqual([])
  const captured = (await readSlot(slot, cdcPublication(fixture.outbox))).map(routed)
  expect(captured).toHaveLength(4)

  // The same rows, dispatched to a relay after all.
  const { schema } = fixture.outbox.tables
  await db.query(
    `insert into ${schema}.outbox_dispatch (lane, key, event_id) select 0, hashtext(aggregate_id), id from ${schema}.outbox order by id`,
  )
  const broker = memory()
  expect(await fixture.relay(broker).once()).toBe(4)
  const sent = broker.published.map(({ topic, orderingKey, attributes, body }) => ({
    topic,
    key: orderingKey,
    headers: attributes,
    body: `\\x${Buffer.from(body).toString('hex')}`,
  }))
  const byId = (a: Message, b: Message): number => ((a.headers['event_id'] ?? '') < (b.headers['event_id'] ?? '') ? -1 : 1)
  expect(captured.map(received).toSorted(byId)).toEqual(sent.toSorted(byId))
})

test.runIf(findProgram('psql') !== undefined)('events added by psql alone are relayed like the others', async () => {
  const { outbox, publish, relay, states } = await outboxFixture(db)
  const { schema } = outbox.tables
  await publish('17', 'from the library')
  const script = `
    begin;
    create table if not exists ${schema}_orders (id int);
    insert into ${schema}_orders values (17);
    select ${schema}.add_event('video.events', 'video', '17', 'VideoPublished', convert_to('{"title": "from psql"}', 'UTF8'), headers => '{"traceparent": "00-aa"}');
    select ${schema}.add_event('video.events', 'video', '18', 'VideoPublished', convert_to('{"title": "another"}', 'UTF8'));
    commit;
    begin;
    select ${schema}.add_event('video.events', 'video', '19', 'VideoPublished', convert_to('{}', 'UTF8'));
    rollback;`
  await promisify(execFile)('psql', ['--no-psqlrc', '--quiet', '--set', 'ON_ERROR_STOP=1', '--dbname', url, '--command', script])
  const broker = memory()
  expect(await relay(broker).once()).toBe(3)
  expect(await states()).toEqual({ '17 1': 'PUBLISHED', '17 2': 'PUBLISHED', '18 1': 'PUBLISHED' })
  const message = broker.published.find(({ attributes }) => attributes['version'] === '2')
  expect(message).toMatchObject({
    topic: 'video.events',
    orderingKey: '17',
    attributes: {
      event_id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/),
      event_type: 'VideoPublished',
      aggregate_type: 'video',
      aggregate_id: '17',
      schema_version: '1',
      content_type: 'application/json',
      traceparent: '00-aa',
    },
  })
  expect(Buffer.from(message?.body ?? []).toString()).toBe('{"title": "from psql"}')
  // The id carries the time at which it was made.
  const madeAtMs = Number.parseInt((message?.attributes['event_id'] ?? '').replaceAll('-', '').slice(0, 12), 16)
  expect(Math.abs(madeAtMs - Date.parse(message?.attributes['occurred_at'] ?? ''))).toBeLessThan(1_000)
})

describe('switching on', () => {
  test('waits until relays have drained what is left', async () => {
    const { outbox, publish, relay } = await outboxFixture(db)
    await publish('v', '1', '2')
    const told: string[] = []
    const slot = newSlot()
    const switching = switchCdcOn({ db, outbox, slot, actor, onProgress: (text) => told.push(text) })
    await eventually(() => told.length > 0)
    expect(told[0]).toContain('2 events wait for a relay')
    await publish('v', '3')
    expect(await relay(memory()).once()).toBe(2)
    await switching
    expect(await cdcStatus(db, outbox)).toMatchObject({ dispatching: false })
    expect((await readSlot(slot, cdcPublication(outbox))).map((row) => row['version'])).toEqual(['3'])
  })

  test('can be interrupted and goes on when called again', async () => {
    const { outbox, publish, relay } = await outboxFixture(db)
    await publish('v', '1')
    const slot = newSlot()
    const stop = new AbortController()
    await expect(
      switchCdcOn({ db, outbox, slot, actor, signal: stop.signal, onProgress: () => stop.abort() }),
    ).rejects.toMatchObject({ code: 'ABORTED' })
    await relay(memory()).once()
    await switchCdcOn({ db, outbox, slot, actor })
    const { rows } = await pool.query(`select action from ${outbox.tables.schema}.audit_log`)
    expect(rows).toEqual([{ action: 'outbox.cdc-on' }])
  })
})

test('switching off refuses running relays, and waits until the connector has passed the point', async () => {
  const { outbox, publish, relay, dispatch } = await outboxFixture(db)
  const slot = newSlot()
  await switchCdcOn({ db, outbox, slot, actor })
  await publish('v', '1')
  await db.query(`insert into ${outbox.tables.schema}.outbox_relay values ('alive', clock_timestamp())`)
  await expect(switchCdcOff({ db, outbox, slot, actor })).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringContaining('alive'),
  })
  await db.query(`delete from ${outbox.tables.schema}.outbox_relay`)
  await db.query(
    `update ${outbox.tables.schema}.outbox_lane set lock_token = gen_random_uuid(), locked_by = 'patient', locked_at = clock_timestamp() - interval '1 hour',
            lock_expires_at = clock_timestamp() + interval '1 minute' where lane < 3`,
  )
  for (const heartbeat of [
    [],
    [`insert into ${outbox.tables.schema}.outbox_relay values ('patient', clock_timestamp() - interval '20 seconds')`],
  ]) {
    for (const statement of heartbeat) await db.query(statement)
    await expect(switchCdcOff({ db, outbox, slot, actor, signal: AbortSignal.abort() })).rejects.toMatchObject({
      code: 'REFUSED',
      message: expect.stringContaining('patient'),
    })
    expect((await outboxStatus(db, outbox)).relays).toEqual([{ relay: 'patient', lanes: 3, seenMs: expect.any(Number) }])
  }
  expect(await cdcStatus(db, outbox)).toMatchObject({ dispatching: false })
  await db.query(`update ${outbox.tables.schema}.outbox_lane set lock_expires_at = clock_timestamp()`)
  expect((await outboxStatus(db, outbox)).relays).toEqual([])
  await expect(switchCdcOff({ db, outbox, slot: 'nobody', actor })).rejects.toMatchObject({ code: 'NOT_FOUND' })

  let early: Promise<unknown> | undefined
  const startRelay = `insert into ${outbox.tables.schema}.outbox_relay values ('early', clock_timestamp())`
  await expect(
    switchCdcOff({ db, outbox, slot, actor, onProgress: () => void (early ??= db.query(startRelay)) }),
  ).rejects.toThrow(/early.*Dispatch is on already/)
  await early
  await db.query(`delete from ${outbox.tables.schema}.outbox_relay where worker = 'early'`)
  const told: string[] = []
  const switching = switchCdcOff({ db, outbox, slot, actor, onProgress: (text) => told.push(text) })
  await eventually(() => told.length > 0)
  await publish('v', '2')
  expect(await dispatch()).toHaveLength(1)
  expect((await readSlot(slot, cdcPublication(outbox))).map((row) => row['version'])).toEqual(['1', '2'])
  await switching
  const broker = memory()
  expect(await relay(broker).once()).toBe(1)
  expect(await cdcStatus(db, outbox)).toMatchObject({ dispatching: true })
})

describe('retention behind a slot', () => {
  const retentionOf = ({ outbox, signals }: OutboxFixture, slot: string): OutboxRetention =>
    createOutboxRetention({ db, outbox, signals, slot, eventsMs: 0, idleMs: 1 })
  const versions = async ({ outbox }: OutboxFixture): Promise<string[]> => {
    const query = `select aggregate_id || ' ' || version as id from ${outbox.tables.schema}.outbox order by 1`
    return (await pool.query<{ id: string }>(query)).rows.map(({ id }) => id)
  }
  const signal = new AbortController().signal
  /** The slot confirms everything up to now. A line can be ahead of what is on disk, and of that nobody reads more. */
  const confirm = async ({ outbox }: OutboxFixture, slot: string): Promise<void> => {
    await pool.query(`select pg_logical_emit_message(false, 'test', 'x', true)`)
    await readSlot(slot, cdcPublication(outbox))
  }

  test('removes what the slot has confirmed and nothing else', async () => {
    const fixture = await outboxFixture(db)
    const slot = newSlot()
    await switchCdcOn({ db, outbox: fixture.outbox, slot, actor })
    const retention = retentionOf(fixture, slot)
    await fixture.publish('v', '1', '2')
    await everybodyEnded(pool)
    await retention.pass(signal)
    expect(await versions(fixture)).toEqual(['v 1', 'v 2'])
    await confirm(fixture, slot)
    await fixture.publish('v', '3')
    await retention.pass(signal)
    expect(await versions(fixture)).toEqual(['v 3'])
    await retention.pass(signal)
    expect(await versions(fixture)).toEqual(['v 3'])
  })

  test('keeps an event of a transaction that was still open when the line was drawn', async () => {
    const fixture = await outboxFixture(db)
    const { outbox } = fixture
    const slot = newSlot()
    await switchCdcOn({ db, outbox, slot, actor })
    const retention = retentionOf(fixture, slot)
    await fixture.publish('early', '1')
    await everybodyEnded(pool)
    await transaction(db, async (tx) => {
      await outbox.add(tx, videos.VideoPublished, 'late', { title: 'x' })
      // The line is drawn now; what is confirmed below reaches it, but not this transaction's commit.
      await retention.pass(signal)
      await confirm(fixture, slot)
    })
    await retention.pass(signal)
    expect(await versions(fixture)).toEqual(['late 1'])
    await eventually(async () => {
      await confirm(fixture, slot)
      await retention.pass(signal)
      expect(await versions(fixture)).toEqual([])
    })
  })

  test('keeps everything when the slot is gone', async () => {
    const fixture = await outboxFixture(db)
    const slot = newSlot()
    await switchCdcOn({ db, outbox: fixture.outbox, slot, actor })
    await fixture.publish('v', '1')
    await pool.query('select pg_drop_replication_slot($1)', [slot])
    const refused = (message: string): object => ({ code: 'REFUSED', message: expect.stringContaining(message) })
    const retention = retentionOf(fixture, slot)
    await expect(retention.pass(signal)).rejects.toMatchObject(
      refused(`run \`waybill outbox cdc off --slot ${slot} --lost --schema`),
    )
    await giveUpSlot({ db, outbox: fixture.outbox, slot, actor })
    await expect(retention.pass(signal)).rejects.toMatchObject(refused('retention needs no slot: take it out of its options'))
    expect(await versions(fixture)).toEqual(['v 1'])
  })
})

test('a server whose log holds too little is refused', async () => {
  const plain = await startPostgres()
  const other = new pg.Pool({ connectionString: plain.url })
  const { outbox } = await outboxFixture(fromPg(other))
  await expect(switchCdcOn({ db: fromPg(other), outbox, slot: newSlot(), actor })).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringContaining('wal_level'),
  })
  await other.end()
  await plain.stop('immediate')
})
