/** What becomes of the events when the slot of a connector is gone, or the switch to it is in doubt. */
import { describe, expect, test } from 'vitest'
import { outboxFixture } from '../../test/setup/outbox-fixture.ts'
import { logicalDatabase } from '../../test/setup/logical-database.ts'
import { readInserts } from '../../test/setup/pgoutput.ts'
import { WaybillError } from '../core/errors.ts'
import type { Database } from '../postgres/database.ts'
import { eventually } from '../testing/eventually.ts'
import { memory } from '../transport/memory.ts'
import { cdcPublication } from './outbox-cdc-slot.ts'
import { cdcStatus, giveUpSlot, switchCdcOff, switchCdcOn } from './outbox-cdc.ts'

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
