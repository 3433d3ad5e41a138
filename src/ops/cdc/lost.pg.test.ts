/** What becomes of the events when the slot of a connector is gone, or the switch to it is in doubt. */
import { describe, expect, test } from 'vitest'
import { outboxFixture, videos } from '../../../test/setup/outbox-fixture.ts'
import { logicalDatabase } from '../../../test/setup/logical-database.ts'
import { readInserts } from '../../../test/setup/pgoutput.ts'
import { WaybillError } from '../../core/errors.ts'
import { skipParked } from '../../outbox/operate/parked.ts'
import type { Database } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { cdcPublication } from './slot.ts'
import { cdcStatus, giveUpSlot, switchCdcOff, switchCdcOn } from './cdc.ts'

const { pool, db } = await logicalDatabase()
const actor = 'ada'

let slots = 0
const newSlot = (): string => `waybill_lost_${(slots += 1)}`

describe('a slot that is gone', () => {
  const drop = async (slot: string): Promise<unknown> => await pool.query('select pg_drop_replication_slot($1)', [slot])
  const versions = (broker: ReturnType<typeof memory>): string[] =>
    broker.published.map(({ orderingKey, attributes }) => `${orderingKey} ${attributes['version']}`)

  test('gets no successor that begins later: what it had not read would be lost', async () => {
    const { outbox, publish } = await outboxFixture(db)
    const slot = newSlot()
    await switchCdcOn({ db, outbox, slot, actor })
    await publish('v', '1')
    await drop(slot)
    for (const name of [slot, newSlot()]) {
      await expect(switchCdcOn({ db, outbox, slot: name, actor })).rejects.toMatchObject({
        code: 'REFUSED',
        message: expect.stringContaining(`with the slot "${slot}"`),
      })
      await expect(switchCdcOff({ db, outbox, slot: name, actor })).rejects.toMatchObject({
        code: 'NOT_FOUND',
        message: expect.stringContaining('--lost'),
      })
    }
    const made = await pool.query('select from pg_replication_slots where slot_name = $1', [slot])
    expect(made.rowCount).toBe(0)
  })

  test('leaves its events to relays, in order, though newer ones stand in line', async () => {
    const { outbox, publish, relay } = await outboxFixture(db)
    const slot = newSlot()
    await publish('v', '1')
    expect(await relay(memory()).once()).toBe(1)
    await pool.query(
      `begin; set local session_replication_role = replica; update ${outbox.tables.schema}.outbox set occurred_at = occurred_at - interval '1 hour'; commit`,
    )
    await switchCdcOn({ db, outbox, slot, actor })
    await expect(giveUpSlot({ db, outbox, slot, actor })).rejects.toMatchObject({
      code: 'REFUSED',
      message: expect.stringContaining('has its log'),
    })
    await publish('v', '2', '3')
    await publish('w', '1')
    const told: string[] = []
    const switching = switchCdcOff({ db, outbox, slot, actor, onProgress: (text) => told.push(text) })
    await Promise.all([
      expect(switching).rejects.toMatchObject({ code: 'NOT_FOUND' }),
      eventually(() => told.length > 0)
        .then(() => publish('v', '4'))
        .then(() => drop(slot)),
    ])

    expect(await giveUpSlot({ db, outbox, slot, actor })).toBe(4)
    await publish('w', '2')
    const broker = memory()
    expect(await relay(broker).once()).toBe(5)
    expect(versions(broker).filter((each) => each.startsWith('v'))).toEqual(['v 2', 'v 3', 'v 4'])
    expect(versions(broker).filter((each) => each.startsWith('w'))).toEqual(['w 1', 'w 2'])
    expect(await cdcStatus(db, outbox)).toMatchObject({ dispatching: true })
  })

  test('gets no successor either after a switch back that was interrupted: relays publish first what only it had', async () => {
    const { outbox, publish, relay } = await outboxFixture(db)
    const [slot, next] = [newSlot(), newSlot()]
    const signal = AbortSignal.abort()
    await switchCdcOn({ db, outbox, slot, actor })
    await publish('v', '1')
    await expect(switchCdcOff({ db, outbox, slot, actor, signal })).rejects.toMatchObject({ code: 'ABORTED' })
    await drop(slot)
    await expect(switchCdcOn({ db, outbox, slot: next, actor, signal })).rejects.toMatchObject({
      code: 'REFUSED',
      message: expect.stringContaining(`\`waybill outbox cdc off --slot ${slot} --lost --schema ${outbox.tables.schema}\``),
    })
    const { dispatching, slots: there } = await cdcStatus(db, outbox)
    expect({ dispatching, names: there.map((each) => each.slot) }).toEqual({
      dispatching: true,
      names: expect.not.arrayContaining([next]),
    })

    expect(await giveUpSlot({ db, outbox, slot, actor })).toBe(1)
    const broker = memory()
    expect(await relay(broker).once()).toBe(1)
    expect(versions(broker)).toEqual(['v 1'])
    await switchCdcOn({ db, outbox, slot: next, actor })
  })

  test('has lost nothing once the switch back is done', async () => {
    const { outbox, publish, relay } = await outboxFixture(db)
    const slot = newSlot()
    await switchCdcOn({ db, outbox, slot, actor })
    await publish('v', '1')
    const told: string[] = []
    const switching = switchCdcOff({ db, outbox, slot, actor, onProgress: (text) => told.push(text) })
    await eventually(() => told.length > 0)
    await publish('v', '2')
    await readInserts(pool, slot, cdcPublication(outbox))
    await switching
    await drop(slot)
    expect(await relay(memory()).once()).toBe(1)
    await switchCdcOn({ db, outbox, slot: newSlot(), actor })
    const { rows } = await pool.query<{ action: string }>(`select action from ${outbox.tables.schema}.audit_log order by id`)
    expect(rows.map(({ action }) => action)).toEqual(['outbox.cdc-on', 'outbox.cdc-off', 'outbox.cdc-off-done', 'outbox.cdc-on'])
  })

  test('costs nothing where no connector publishes: what relays have published is not published again', async () => {
    const { outbox, publish, relay, dispatch } = await outboxFixture(db)
    const [slot, never] = [newSlot(), newSlot()]
    const refuses = async (name: string, why: string): Promise<void> => {
      await expect(giveUpSlot({ db, outbox, slot: name, actor })).rejects.toMatchObject({
        code: 'REFUSED',
        message: expect.stringContaining(why),
      })
      expect(await dispatch()).toEqual([])
    }
    await publish('v', '1')
    await relay(memory()).once()
    await refuses(never, 'never switched onto a connector')
    await switchCdcOn({ db, outbox, slot, actor })
    await publish('v', '2')
    await refuses(never, `not onto "${never}"`)
    expect(await cdcStatus(db, outbox)).toMatchObject({ dispatching: false })
    const told: string[] = []
    const switching = switchCdcOff({ db, outbox, slot, actor, onProgress: (text) => told.push(text) })
    await eventually(() => told.length > 0)
    await refuses(never, `not onto "${never}"`)
    await readInserts(pool, slot, cdcPublication(outbox))
    await switching
    await drop(slot)
    await refuses(slot, `the slot "${slot}" came to its end`)
  })

  test('is given up once: what relays were to publish again is not put in line a second time', async () => {
    const { outbox, publish, relay, dispatch } = await outboxFixture(db)
    const slot = newSlot()
    await switchCdcOn({ db, outbox, slot, actor })
    await publish('v', '1')
    await drop(slot)
    expect(await giveUpSlot({ db, outbox, slot, actor })).toBe(1)
    expect(await relay(memory()).once()).toBe(1)
    await expect(giveUpSlot({ db, outbox, slot, actor })).rejects.toMatchObject({ code: 'REFUSED' })
    expect(await dispatch()).toEqual([])
  })

  test('leaves what has a date to its date, and what failed to the next pass', async () => {
    const { outbox, publish, relay, dispatch } = await outboxFixture(db)
    const slot = newSlot()
    const add = (id: string): Promise<unknown> =>
      transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, id, { title: 'x' }, { notBefore: new Date('9000-01-01') }))
    await switchCdcOn({ db, outbox, slot, actor })
    await publish('v', '1')
    await expect(switchCdcOff({ db, outbox, slot, actor, signal: AbortSignal.abort() })).rejects.toMatchObject({
      code: 'ABORTED',
    })
    await drop(slot)
    await publish('failed', '1')
    await publish('tried', '1')
    await add('head')
    await add('head')
    const refusing = memory({ rejects: ({ orderingKey }) => orderingKey !== 'tried' })
    await relay(refusing, { backoff: { firstMs: 3_600_000, maxMs: 3_600_000 } }).once()
    await add('new')
    /** Those of all that did not fail. */
    const dates = async (): Promise<string[]> =>
      (await dispatch())
        .filter((row) => row['publish_attempts'] === 0 && row['next_retry_at'] !== null)
        .map((row) => (row['next_retry_at'] as Date).toISOString())
        .toSorted()
    const before = await dates()
    expect(before).toHaveLength(3)

    expect(await giveUpSlot({ db, outbox, slot, actor })).toBe(6)
    expect(await dates()).toEqual(before)
    const broker = memory()
    expect(await relay(broker).once()).toBe(3)
    expect(versions(broker).toSorted()).toEqual(['failed 1', 'tried 1', 'v 1'])
    expect((await dispatch()).map((row) => String(row['last_error'])).toSorted()).toEqual([
      'null',
      'waits for its date',
      'waits for its date',
    ])
  })

  test('leaves what was skipped a marker, though that is out already', async () => {
    const { outbox, publish, relay } = await outboxFixture(db)
    const slot = newSlot()
    const broker = memory({ rejects: ({ body }) => body.byteLength > 0 })
    await publish('v', '1')
    await relay(broker, { maxAttempts: 1 }).once()
    await skipParked({ db, outbox, filter: { all: true }, actor })
    expect(await relay(broker).once()).toBe(1)
    await switchCdcOn({ db, outbox, slot, actor })
    await publish('v', '2')
    await drop(slot)

    expect(await giveUpSlot({ db, outbox, slot, actor })).toBe(2)
    broker.setRejects(() => false)
    expect(await relay(broker).once()).toBe(2)
    expect(broker.published.map(({ attributes }) => `${attributes['version']} ${attributes['event_type']}`)).toEqual([
      '1 waybill.void',
      '1 waybill.void',
      '2 VideoPublished',
    ])
  })
})

test('a switch that may have taken effect keeps its slot', async () => {
  const { outbox, publish } = await outboxFixture(db)
  const slot = newSlot()
  const unsure: Database = {
    ...db,
    attempt: async (options, work) => {
      await db.attempt(options, work)
      throw new WaybillError('COMMIT_UNKNOWN', 'The connection broke during COMMIT.')
    },
  }
  await expect(switchCdcOn({ db: unsure, outbox, slot, actor })).rejects.toMatchObject({ code: 'COMMIT_UNKNOWN' })
  await publish('v', '1')
  await switchCdcOn({ db, outbox, slot, actor })
  expect(await readInserts(pool, slot, cdcPublication(outbox))).toHaveLength(1)
})
