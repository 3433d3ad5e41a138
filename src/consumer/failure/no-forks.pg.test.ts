/**
 * What looks like a fork and is none: repeats, and what was overtaken, given up, moved over or forgotten.
 */
import { expect, test } from 'vitest'
import { forksOf, range, readers, reading } from '../../../test/consumer/reading.ts'
import { accounts, consumerFixture, deposited, message, published, uncounted } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { voidEventType } from '../../core/event/event.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import { discardDeadLetters } from '../operate/discard.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const balance = (id: string, version: number): OutgoingMessage =>
  message({ stream: accounts, type: 'BalanceSet', id, version }, { balance: 7 })

test('what was seen is no fork when it comes again, in whichever company', async () => {
  for (const kind of ['deltas', 'states', 'rows'] as const) {
    const { fixture, take, stop } = await reading(db, kind, { lingerMs: 50 })
    const events = range(1, 6).map((version) => (kind === 'deltas' ? deposited('a', version, 1) : published('a', version)))
    await take(...events.slice(0, 4))
    await take(...events)
    await take(...events.slice(2, 3))
    expect(forksOf(fixture)).toEqual([])
    await stop()
  }
})

test.each(['states', 'rows'] as const)('an older state that was overtaken is no fork for a reader of %s', async (kind) => {
  const { fixture, take, stop } = await reading(db, kind, { lingerMs: 50 })
  await take(published('a', 1), published('a', 5))
  await take(published('a', 3))
  await take(published('a', 6), published('a', 4))
  await take(published('a', 2), published('a', 8), published('a', 7))
  expect(forksOf(fixture)).toEqual([])
  // The one that is, is noticed beside one that is not.
  await take(published('a', 9))
  await take(published('b', 4), published('a', 9))
  expect(forksOf(fixture)).toEqual(['a 9'])
  await stop()
})

test('a gapped batch with a version that was taken is noticed', async () => {
  for (const kind of ['states', 'rows'] as const) {
    const { fixture, take, stop } = await reading(db, kind, { lingerMs: 100 })
    await take(published('a', 1), published('a', 2))
    await take(published('a', 2), published('a', 5))
    await take(published('a', 3))
    expect(forksOf(fixture)).toEqual(['a 2'])
    await stop()
  }
})

test('a delta below a state that closed the gap before it is no fork', async () => {
  const { fixture, take, stop } = await reading(db, 'deltas')
  await take(deposited('a', 1, 1), balance('a', 5))
  await take(deposited('a', 3, 1))
  expect(forksOf(fixture)).toEqual([])
  await take(deposited('a', 5, 1))
  expect(forksOf(fixture)).toEqual(['a 5'])
  await stop()
})

test('a version before the first that a consumer which joined later has seen is no fork', async () => {
  const { fixture, take, stop } = await reading(db, 'deltas', { deltaStart: 'any' })
  await take(deposited('a', 7, 1), deposited('a', 8, 1))
  await take(deposited('a', 6, 1))
  expect(forksOf(fixture)).toEqual([])
  await take(deposited('a', 7, 1))
  expect(forksOf(fixture)).toEqual(['a 7'])
  await stop()
})

test('a dead letter that its aggregate passed is no fork: not delivered again, not redriven, not discarded', async () => {
  for (const kind of ['deltas', 'states'] as const) {
    const { fixture, stop } = await reading(db, kind, { onDead: 'pass', maxAttempts: 1 })
    const event = (id: string, version: number, bad = false) =>
      kind === 'deltas' ? deposited(id, version, bad ? -1 : 1) : published(id, version, bad ? 'bad' : 'good')
    const dead = [event('a', 2, true), event('b', 2, true)]
    await fixture.publish(event('a', 1), event('b', 1), ...dead)
    await eventually(async () => expect(await fixture.count('dead_letter')).toBe(2))
    await fixture.publish(event('a', 3), event('b', 3))
    await eventually(async () => expect(await fixture.count('effect')).toBe(4))
    await discardDeadLetters({
      db,
      schema: fixture.schema,
      filter: { aggregateType: kind === 'deltas' ? 'account' : 'video', aggregateId: 'b' },
      actor: 'test',
      reason: 'test',
    })
    await fixture.publish(...dead)
    await fixture.publish(event('a', 4), event('b', 4))
    await eventually(async () => expect(await fixture.count('effect')).toBe(6))
    await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'test' })
    await eventually(async () => expect(await fixture.count('dead_letter', `state = 'dead' and redrives = 1`)).toBe(1))
    expect(forksOf(fixture)).toEqual([])
    await stop()
  }
})

test('an event that its handler discarded is no fork when it comes again', async () => {
  for (const kind of ['deltas', 'states'] as const) {
    const { fixture, take, stop } = await reading(db, kind)
    const unwanted = kind === 'deltas' ? deposited('a', 2, -2) : published('a', 2, 'unwanted')
    const event = (version: number) => (kind === 'deltas' ? deposited('a', version, 1) : published('a', version))
    await take(event(1))
    await fixture.publish(unwanted)
    await eventually(async () => expect(await fixture.count('dead_letter')).toBe(1))
    await take(event(3))
    // What comes again is a duplicate by now.
    await take(unwanted, event(4))
    expect(forksOf(fixture)).toEqual([])
    await stop()
  }
})

test('a letter that was passed before its turn leaves a marker in line, and is no fork when it comes again', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(readers.deltas(fixture, { onDead: 'pass', maxCrashes: 1, transport: uncounted(fixture.broker) }))
  const letter = deposited('a', 3, 1)
  await fixture.publish(deposited('a', 1, 1))
  await eventually(async () => expect(await fixture.count('effect')).toBe(1))
  // As if a process had ended over it, before its turn came.
  await fixture.query(
    `insert into $schema.delivery_attempt (consumer, generation, event_id, unfinished) values ('catalog', 1, $1, 1)`,
    [letter.attributes['event_id'] ?? ''],
  )
  await fixture.publish(letter)
  await eventually(async () => expect(await fixture.count('dead_letter', `reason = 'crashed'`)).toBe(1))
  expect(await fixture.count('inbox_message', `attributes ->> 'event_type' = '${voidEventType}'`)).toBe(1)
  await fixture.publish(deposited('a', 2, 1), deposited('a', 4, 1))
  await eventually(async () => expect(await fixture.count('effect')).toBe(3))
  await fixture.publish(letter, deposited('a', 5, 1))
  await eventually(async () => expect(await fixture.count('effect')).toBe(4))
  expect(forksOf(fixture)).toEqual([])
  await stop()
})

test('a marker that an outbox published in place of an event has its id, and is no fork', async () => {
  const { fixture, take, stop } = await reading(db, 'deltas')
  const skipped = deposited('a', 2, 1)
  await take(deposited('a', 1, 1))
  await take({ ...skipped, attributes: { ...skipped.attributes, event_type: voidEventType }, body: Buffer.alloc(0) })
  await take(deposited('a', 3, 1))
  await take(skipped)
  expect(forksOf(fixture)).toEqual([])
  await stop()
})

test('two consumers of one schema do not take each other’s events for forks', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(readers.states(fixture), readers.rows(fixture, { name: 'other' }))
  const events = range(1, 4).map((version) => published('a', version))
  await fixture.publish(...events)
  await eventually(async () => expect(await fixture.count('inbox')).toBe(8))
  expect(forksOf(fixture)).toEqual([])
  await stop()
})

test('what an operator moved is not taken for seen, nor is what an instance without these columns moved', async () => {
  const { fixture, take, stop } = await reading(db, 'deltas')
  await take(deposited('a', 1, 1), deposited('a', 2, 1))
  await fixture.query('update $schema.consumer_position set version = 5')
  await take(deposited('a', 4, 1))
  await take(deposited('a', 6, 1))
  await take(deposited('a', 3, 1))
  await take(deposited('a', 5, 1))
  expect(forksOf(fixture)).toEqual([])
  await take(deposited('a', 6, 2))
  expect(forksOf(fixture)).toEqual(['a 6'])
  await stop()
})

test('an event from a time that the inbox has forgotten is no fork: its row may be gone', async () => {
  const { fixture, take, stop } = await reading(db, 'deltas')
  const old = deposited('a', 1, 1, { occurred_at: new Date(Date.now() - 40 * 86_400_000).toISOString() })
  await take(old, deposited('a', 2, 1))
  await fixture.query(`delete from $schema.inbox where event_id = '${old.attributes['event_id']}'`)
  await fixture.query(`update $schema.consumer set forgotten_before = clock_timestamp() - interval '35 days'`)
  await take(old)
  expect(forksOf(fixture)).toEqual([])
  // Younger than that it would be there.
  await take(deposited('a', 1, 1))
  expect(forksOf(fixture)).toEqual(['a 1'])
  await stop()
})

test('versions that were taken without an inbox are not known by id, and what comes again is no fork', async () => {
  const fixture = await consumerFixture(db)
  const without = fixture.start(readers.rows(fixture, { inbox: false }))
  const events = range(1, 3).map((version) => published('a', version))
  await fixture.publish(...events)
  await eventually(async () => expect(await fixture.count('video_view', 'version = 3')).toBe(1))
  await without()
  const stop = fixture.start(readers.rows(fixture))
  await fixture.publish(...events, published('b', 1))
  await eventually(async () => expect(await fixture.count('inbox')).toBe(4))
  expect(forksOf(fixture)).toEqual([])
  await stop()
})
