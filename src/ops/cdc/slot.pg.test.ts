/** Onto which slots the outbox is switched, and in what order it goes back: nothing is lost, and nothing overtakes. */
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { opened } from '../../../test/outbox/world.ts'
import { log, outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { logicalDatabase, makeSlot } from '../../../test/setup/logical-database.ts'
import { readInserts } from '../../../test/setup/pgoutput.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Database } from '../../postgres/query/database.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { doctorOutbox } from '../doctor/outbox.ts'
import { cdcPublication } from './slot.ts'
import { cdcStatus, giveUpSlot, switchCdcOff, switchCdcOn } from './cdc.ts'

const { url, pool, db } = await logicalDatabase()
const actor = 'ada'

const drop = async (slot: string): Promise<unknown> => await pool.query('select pg_drop_replication_slot($1)', [slot])
const refused = (message: string): object => ({ code: 'REFUSED', message: expect.stringContaining(message) })
const isThere = async (slot: string): Promise<boolean> =>
  (await pool.query('select from pg_replication_slots where slot_name = $1', [slot])).rowCount === 1

/** A database of which every transaction begins with something else. */
const after = (first: () => Promise<unknown>): Database => ({
  ...db,
  attempt: async (options, work) => {
    await first()
    return await db.attempt(options, work)
  },
})

test('a slot that is still being made is not switched onto: what is committed before it is done is not in it', async () => {
  const { outbox } = await outboxFixture(db)
  const slot = 'waybill_unfinished'
  await pool.query(`create publication ${outbox.tables.schema}_outbox for table ${outbox.tables.outbox.quoted}`)
  const writer = await opened(db, (tx) => tx.query('select pg_current_xact_id()'))
  onTestFinished(writer.commit)
  const making = pool.query(`select pg_create_logical_replication_slot($1, 'pgoutput')`, [slot])
  await eventually(async () => {
    const { rowCount } = await pool.query(`select from pg_replication_slots where slot_name = $1 and plugin = 'pgoutput'`, [slot])
    return rowCount === 1
  })
  await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringMatching(/still being made, by process \d+/),
  })
  expect(await cdcStatus(db, outbox)).toMatchObject({ dispatching: true })
  await writer.commit()
  await making
  await switchCdcOn({ db, outbox, slot, actor })
})

test('a slot that is dropped while the switch waits undoes the switch', async () => {
  const { outbox } = await outboxFixture(db)
  const slot = 'waybill_dropped'
  await makeSlot(pool, outbox, slot)
  const late = after(() => drop(slot))
  await expect(switchCdcOn({ db: late, outbox, slot, actor })).rejects.toMatchObject(refused('was dropped meanwhile'))
  expect(await cdcStatus(db, outbox)).toMatchObject({ dispatching: true })
})

test('a switch that fails keeps the slot that it made if another has switched onto it', async () => {
  const { outbox } = await outboxFixture(db)
  const slot = 'waybill_shared'
  let isFirst = true
  const slow = after(async () => {
    if (!isFirst) return
    isFirst = false
    await switchCdcOn({ db, outbox, slot, actor: 'bob' })
    throw new WaybillError('TIMEOUT', 'A writer went on for too long.')
  })
  await expect(switchCdcOn({ db: slow, outbox, slot, actor })).rejects.toMatchObject({ code: 'TIMEOUT' })
  expect(await isThere(slot)).toBe(true)
})

test('of two who switch at once onto slots of their own, one is told that the other has', async () => {
  const { outbox } = await outboxFixture(db)
  const later = after(() => switchCdcOn({ db, outbox, slot: 'waybill_first', actor: 'bob' }))
  await expect(switchCdcOn({ db: later, outbox, slot: 'waybill_second', actor })).rejects.toMatchObject(
    refused('with the slot "waybill_first", and the slot "waybill_second" is another one'),
  )
  expect(await isThere('waybill_first')).toBe(true)
  expect(await isThere('waybill_second')).toBe(false)
})

test('a slot without its publication, and one that was not switched onto, are refused', async () => {
  const { outbox } = await outboxFixture(db)
  const { schema } = outbox.tables
  const slot = 'waybill_early'
  await pool.query(`select pg_create_logical_replication_slot($1, 'pgoutput')`, [slot])
  await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toMatchObject(refused(`publication "${schema}_outbox" is not`))
  await drop(slot)
  await switchCdcOn({ db, outbox, slot, actor })
  const another = 'waybill_another'
  await pool.query(`select pg_create_logical_replication_slot($1, 'pgoutput')`, [another])
  await expect(switchCdcOn({ db, outbox, slot: another, actor })).rejects.toMatchObject(refused('is another one'))
})

test('a slot that a connector reads already is refused: it would overtake what relays have yet to publish', async () => {
  const { outbox } = await outboxFixture(db)
  const slot = 'waybill_read'
  await makeSlot(pool, outbox, slot)
  const connector = new pg.Client({ connectionString: `${url}?replication=database` })
  connector.on('error', () => {})
  await connector.connect()
  const options = `proto_version '1', publication_names '${outbox.tables.schema}_outbox'`
  const reading = connector.query(`START_REPLICATION SLOT ${slot} LOGICAL 0/0 (${options})`).catch(() => {})
  const activePid = async (): Promise<number | false> => {
    const query = 'select active_pid as pid from pg_replication_slots where slot_name = $1'
    return (await pool.query<{ pid: number | null }>(query, [slot])).rows[0]?.pid ?? false
  }
  const pid = await eventually(activePid)
  await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toMatchObject(refused(`is being read, by process ${pid}`))
  await pool.query('select pg_terminate_backend($1)', [pid])
  await reading
  await eventually(async () => (await activePid()) === false)
  await switchCdcOn({ db, outbox, slot, actor })
})

test('relays that have not drained go before the connector: switching back waits for them, or for its slot to be given up', async () => {
  const { outbox, publish, relay } = await outboxFixture(db)
  const slot = 'waybill_undrained'
  const stopped = AbortSignal.abort()
  await publish('v', '1')
  await expect(switchCdcOn({ db, outbox, slot, actor, signal: stopped })).rejects.toMatchObject({ code: 'ABORTED' })
  await publish('v', '2')
  await expect(switchCdcOff({ db, outbox, slot, actor, signal: stopped })).rejects.toMatchObject(
    refused('1 event waits for a relay'),
  )
  expect(await cdcStatus(db, outbox)).toMatchObject({ dispatching: false })
  await drop(slot)
  expect(await giveUpSlot({ db, outbox, slot, actor })).toBe(2)
  const broker = memory()
  await relay(broker).once()
  expect(log(broker)).toEqual(['v 1', 'v 2'])
})

test('a connector that has yet to reach the switch back goes first: relays would publish newer versions than those that only it has', async () => {
  const { outbox, publish, relay } = await outboxFixture(db)
  const slot = 'waybill_behind'
  const signal = AbortSignal.abort()
  await switchCdcOn({ db, outbox, slot, actor })
  await publish('v', '1')
  await expect(switchCdcOff({ db, outbox, slot, actor, signal })).rejects.toMatchObject({ code: 'ABORTED' })
  await publish('v', '2')
  for (const onto of [slot, 'waybill_ahead_of_it']) {
    await expect(switchCdcOn({ db, outbox, slot: onto, actor, signal })).rejects.toMatchObject(refused(`cdc off --slot ${slot}`))
    expect(await cdcStatus(db, outbox)).toMatchObject({ dispatching: true })
  }
  expect(await isThere('waybill_ahead_of_it')).toBe(false)
  const read = await readInserts(pool, slot, cdcPublication(outbox))
  expect(read.map((row) => row['version'])).toEqual(['1', '2'])
  expect(await relay(memory()).once()).toBe(1)
  await switchCdcOn({ db, outbox, slot, actor })
  await drop(slot)
})

test('a switch back on the server that a database was dumped from keeps nobody from switching it on where it was restored', async () => {
  const { outbox } = await outboxFixture(db)
  const slot = 'waybill_restored'
  await pool.query(`insert into ${outbox.tables.schema}.audit_log (actor, action, details) values ($1, 'outbox.cdc-off', $2)`, [
    actor,
    JSON.stringify({ slot, lsn: 'FFFF/0' }),
  ])
  await switchCdcOn({ db, outbox, slot, actor })
  expect(await cdcStatus(db, outbox)).toMatchObject({ dispatching: false })
  expect(await isThere(slot)).toBe(true)
  await drop(slot)
})

test('a switch back that others begin meanwhile, with the slot that this switch made, is finished first', async () => {
  const { outbox } = await outboxFixture(db)
  const slot = 'waybill_taken'
  const others = { db, outbox, slot, actor: 'bob' }
  let isFirst = true
  const late = after(async () => {
    if (!isFirst) return
    isFirst = false
    await switchCdcOn(others)
    await switchCdcOff({ ...others, signal: AbortSignal.abort() }).catch(() => undefined)
  })
  await expect(switchCdcOn({ db: late, outbox, slot, actor })).rejects.toMatchObject(refused(`cdc off --slot ${slot}`))
  expect(await isThere(slot)).toBe(true)
  await drop(slot)
})

test('what another slot has confirmed says nothing of the connector: only a copy takes the place of the slot that was switched onto', async () => {
  const { outbox, publish } = await outboxFixture(db)
  const [slot, another, copy] = ['waybill_own', 'waybill_of_others', 'waybill_copy']
  const signal = AbortSignal.abort()
  const isDispatching = async (): Promise<boolean> => (await cdcStatus(db, outbox)).dispatching
  await switchCdcOn({ db, outbox, slot, actor })
  await publish('v', '1')
  await pool.query(`select pg_create_logical_replication_slot($1, 'pgoutput')`, [another])
  const refusal = refused(`onto the slot "${slot}"`)
  await expect(switchCdcOff({ db, outbox, slot: another, actor, signal })).rejects.toMatchObject(refusal)
  expect(await isDispatching()).toBe(false)
  await pool.query('select pg_copy_logical_replication_slot($1, $2)', [slot, copy])
  await drop(slot)
  await expect(switchCdcOff({ db, outbox, slot: copy, actor, signal })).rejects.toMatchObject({ code: 'ABORTED' })
  expect(await isDispatching()).toBe(true)
  await expect(switchCdcOff({ db, outbox, slot: another, actor, signal })).rejects.toMatchObject(
    refused(`onto the slot "${copy}"`),
  )
  for (const each of [another, copy]) await drop(each)
})

test('a slot that the server gave up is not switched onto, and one that was switched onto is found by the doctor', async () => {
  const used = await outboxFixture(db)
  await switchCdcOn({ db, outbox: used.outbox, slot: 'waybill_used', actor })
  const found = async (): Promise<readonly string[]> =>
    (await doctorOutbox(db, used.outbox)).filter(({ problem }) => problem === 'slot-gone').map(({ text }) => text)
  expect(await found()).toEqual([])
  const { outbox } = await outboxFixture(db)
  const slot = 'waybill_given_up'
  await makeSlot(pool, outbox, slot)
  await giveUp(slot)
  await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toMatchObject(
    refused('Drop it (select pg_drop_replication_slot('),
  )
  expect(await found()).toEqual([expect.stringMatching(/"waybill_used" has lost its log.*--lost/)])
  await drop('waybill_used')
  expect(await found()).toEqual([expect.stringContaining('"waybill_used" is not in this database')])
  await drop(slot)
  await switchCdcOn({ db, outbox, slot, actor })
})

/** Lets the server remove all log that it does not need itself. Who makes checkpoints hears of a setting when it likes. */
async function giveUp(slot: string): Promise<void> {
  await pool.query('alter system set max_slot_wal_keep_size = 0')
  await pool.query('select pg_reload_conf()')
  await eventually(async () => {
    await pool.query(`select pg_logical_emit_message(false, 'test', 'x'), pg_switch_wal()`)
    await pool.query('checkpoint')
    const query = `select from pg_replication_slots where slot_name = $1 and wal_status = 'lost'`
    return (await pool.query(query, [slot])).rowCount === 1
  })
  await pool.query('alter system reset max_slot_wal_keep_size')
  await pool.query('select pg_reload_conf()')
}
