import { expect, test } from 'vitest'
import { opened, untilBlocked } from '../../../test/outbox/world.ts'
import { outboxFixture, videos } from '../../../test/setup/outbox-fixture.ts'
import { logicalDatabase, makeSlot } from '../../../test/setup/logical-database.ts'
import { event, type NewEvent } from '../../outbox/outbox.ts'
import { pauseOutbox, resumeOutbox } from '../../outbox/operate/pause.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { memory } from '../../transport/memory/memory.ts'
import { cdcStatus, switchCdcOn } from './cdc.ts'

const { pool, db } = await logicalDatabase()
const actor = 'ada'

test('a date ahead is refused while a connector publishes; one that has passed, and none, are not', async () => {
  const fixture = await outboxFixture(db)
  const { outbox, publish } = fixture
  const { schema } = outbox.tables
  await switchCdcOn({ db, outbox, slot: 'waybill_dated', actor })
  const add = (notBefore: Date, ...before: readonly NewEvent[]): Promise<unknown> =>
    transaction(db, (tx) => outbox.addMany(tx, [...before, event(videos.VideoPublished, 'dated', { title: 'x' }, { notBefore })]))
  const ahead = new Date('9000-01-01')
  const plain = event(videos.VideoPublished, 'plain', { title: 'x' })
  const refused = { code: 'REFUSED', message: expect.stringContaining('waits for no date') }
  await expect(add(ahead)).rejects.toMatchObject(refused)
  await expect(add(ahead, plain)).rejects.toMatchObject(refused)
  const bySql = `select ${schema}.add_event('video.events', 'video', 'v', 'VideoPublished', '{}', not_before => now() + interval '1 day')`
  await expect(db.query(bySql)).rejects.toMatchObject({ code: 'WB004' })
  await add(new Date(0))
  await add(new Date(0), plain)
  await publish('v', 'one')
  expect(await fixture.states()).toEqual({
    'dated 1': 'PUBLISHED',
    'dated 2': 'PUBLISHED',
    'plain 1': 'PUBLISHED',
    'v 1': 'PUBLISHED',
  })
})

/** Dispatch goes on, so that relays publish what is added. */
const dispatching = { dispatching: true }

test('switching on is refused before anything is switched while events wait for a date, whatever became of them', async () => {
  const fixture = await outboxFixture(db)
  const { outbox, publish, relay } = fixture
  const slot = 'waybill_ahead'
  const add = (id: string, notBefore: Date): Promise<unknown> =>
    transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, id, { title: 'x' }, { notBefore }))
  const refused = {
    code: 'REFUSED',
    message: expect.stringMatching(/^2 events wait for a date, the last one for 9001-01-01T00:00:0/),
  }
  // One is the head of its aggregate, the other is held behind it.
  await add('v', new Date('9000-01-01'))
  await add('v', new Date('9001-01-01'))
  await publish('v', 'behind')
  await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toMatchObject(refused)
  await relay(memory()).once()
  expect((await fixture.dispatch()).map((row) => row['state'])).toEqual([1, 2, 2])
  await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toMatchObject(refused)
  // Nor is there a slot, for which the server would keep its log.
  expect(await cdcStatus(db, outbox)).toMatchObject({
    ...dispatching,
    slots: expect.not.arrayContaining([expect.objectContaining({ slot })]),
  })
})

test('switching on is refused by parked events, before the switch and after it, whatever is held behind them', async () => {
  const { outbox, publish, relay, dispatch } = await outboxFixture(db)
  const slot = 'waybill_parked'
  const refusing = relay(memory({ rejects: () => true }), { maxAttempts: 1 })
  const refused = { code: 'REFUSED', message: expect.stringContaining('1 events are parked') }
  await publish('v', '1')
  await refusing.once()
  await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toMatchObject(refused)
  expect(await cdcStatus(db, outbox)).toMatchObject(dispatching)
  await db.query(`delete from ${outbox.tables.dispatch.quoted}`)
  await publish('w', '1', '2')
  let pass: Promise<unknown> | undefined
  const parking = switchCdcOn({ db, outbox, slot, actor, onProgress: () => void (pass ??= refusing.once()) })
  await expect(parking).rejects.toMatchObject(refused)
  await expect(parking).rejects.toThrow('Dispatch is off already')
  await pass
  expect((await dispatch()).map((row) => row['state'])).toEqual([3, 2])
})

test('switching on is refused by a pause, which a connector would not heed', async () => {
  const { outbox } = await outboxFixture(db)
  const slot = 'waybill_paused'
  const pause = { db, outbox, actor, aggregateType: 'video', aggregateId: 'v' }
  await pauseOutbox(pause)
  await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringContaining('video v is paused'),
  })
  expect(await cdcStatus(db, outbox)).toMatchObject(dispatching)
  await resumeOutbox(pause)
  await pauseOutbox({ db, outbox, actor, all: true })
  await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toThrow('Everything is paused')
  await resumeOutbox({ db, outbox, actor, all: true })
  await switchCdcOn({ db, outbox, slot, actor })
})

test.each([
  { slot: 'waybill_new', isMade: false },
  { slot: 'waybill_old', isMade: true },
])(
  'an event with a date that is committed while the switch waits for its writer undoes the switch, and the slot that was made for it ($slot)',
  async ({ slot, isMade }) => {
    const { outbox } = await outboxFixture(db)
    if (isMade) await makeSlot(pool, outbox, slot)
    const writer = await opened(db, (tx) =>
      outbox.add(tx, videos.VideoPublished, 'v', { title: 'x' }, { notBefore: new Date('9000-01-01') }),
    )
    // To make the slot waits for the writer, too.
    const switching = switchCdcOn({ db, outbox, slot, actor })
    switching.catch(() => {})
    await untilBlocked(db, switching)
    await writer.commit()
    await expect(switching).rejects.toMatchObject({ code: 'REFUSED', message: expect.stringContaining('wait for a date') })
    const { slots, ...status } = await cdcStatus(db, outbox)
    expect(status).toEqual(dispatching)
    expect(slots.some((each) => each.slot === slot)).toBe(isMade)
  },
)

test('switching on gives up behind a transaction that adds events and does not end, and says what to do', async () => {
  const { outbox } = await outboxFixture(db)
  const slot = 'waybill_busy'
  // To make one would wait for the transaction as well, and for as long as it takes.
  await makeSlot(pool, outbox, slot)
  await transaction(db, async (tx) => {
    await outbox.add(tx, videos.VideoPublished, 'v', { title: 'x' })
    await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toMatchObject({
      code: 'TIMEOUT',
      message: expect.stringMatching(/writes the outbox, or its maintenance, .*Nothing was switched/),
    })
  })
})
