/**
 * The replication slot of a connector: what it must be before the outbox is handed over to it, and what is refused of it.
 *
 * A slot begins where it was finished: what was committed before stands in no slot. So nothing is switched onto one that is not
 * there, is still being made or has lost its log, and while dispatch is off there is one slot that has it all: the one that was
 * switched onto.
 */
import { WaybillError } from '../../core/errors.ts'
import { cdcCommand, lockDispatching, selectDispatching } from '../../outbox/tables/cdc-switch.sql.ts'
import type { Outbox } from '../../outbox/outbox.ts'
import { selectSlot, type SlotRow } from '../../outbox/tables/retention.sql.ts'
import { first, one, rows, type Database, type Queryable } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { dropSlot, selectCdc, selectLastSwitch, selectSwitchedOn, type CdcRow, type SwitchRow } from '../status/outbox.sql.ts'

export interface SlotOptions {
  readonly db: Database
  readonly outbox: Pick<Outbox, 'tables'>
  readonly slot: string
}

/** The publication that a connector subscribes to. */
export function cdcPublication(outbox: Pick<Outbox, 'tables'>): string {
  return `${outbox.tables.schema}_outbox`
}

/** What is there of all that a connector needs. */
export async function findCdc(db: Queryable, { outbox, slot }: Pick<SlotOptions, 'outbox' | 'slot'>): Promise<CdcRow> {
  return await one(db, selectCdc(slot, cdcPublication(outbox)))
}

/** A slot that is there, but from which a connector could not read all that is added from now on, or would read too early. */
export function refuseUnfit({ outbox, slot }: Pick<SlotOptions, 'outbox' | 'slot'>, found: CdcRow): void {
  const what = `The replication slot "${slot}"`
  const drop = `select pg_drop_replication_slot('${slot}')`
  if (!found.made)
    throw refused(
      `${what} is still being made, by process ${found.pid ?? 'unknown'}: that waits for transactions that were open when it began, and what is committed before it is done is not in it. Run this again when it is done, or end that process, which removes the slot (pg_terminate_backend).`,
    )
  if (found.plugin !== 'pgoutput') throw refused(`${what} is there, but of ${found.plugin}, not of pgoutput.`)
  if (found.lost)
    throw refused(
      `${what} has lost its log, so no connector can read what was added since. Drop it (${drop}), and run this again.`,
    )
  if (found.pid !== null)
    throw refused(
      `${what} is being read, by process ${found.pid}. A connector that runs now would overtake what relays have yet to publish. Stop it, and start it when this is done.`,
    )
  if (!found.published)
    throw refused(
      `${what} is there, and the publication "${cdcPublication(outbox)}" is not: a connector that reads from the slot looks for it where the slot begins, even if it is made now. Drop the slot (${drop}), and run this again, which makes both; or make the publication first, then the slot.`,
    )
}

/** The same, of a slot that must be there: whoever made it may have removed it meanwhile. */
export function refuseGone(options: Pick<SlotOptions, 'outbox' | 'slot'>, found: CdcRow): void {
  if (found.plugin === null)
    throw refused(`The replication slot "${options.slot}" was dropped meanwhile. Nothing was switched; run this again.`)
  refuseUnfit(options, found)
}

/** While dispatch is off, what was added since stands in the slot that was switched onto, and in no other. */
export async function refuseAnother({ db, outbox, slot }: SlotOptions, found: CdcRow): Promise<void> {
  const switched = await first(db, selectSwitchedOn(outbox.tables))
  const what = otherwise({ outbox, slot }, found, switched?.slot ?? '')
  if (what === undefined) return
  const off = cdcCommand(outbox.tables.schema, `off --slot ${switched?.slot ?? slot} --lost`)
  const since = switched === undefined ? '' : ` since ${switched.at}, with the slot "${switched.slot}"`
  throw refused(
    `Relays have not dispatched${since}, and the slot "${slot}" ${what}. Nobody would publish what the connector had not read, for a new one begins now. If the connector's slot is there under another name, pass that. If it is gone, run \`${off}\`, start relays, and run this again when you like.`,
  )
}

/**
 * A switch back that was interrupted is finished before the next one: what was added before it stands only in its slot, and relays
 * would publish newer versions before the connector has. If that slot is gone, only the record of the wait's end says that nothing
 * is missing. Returns the last switch. One that was found finished stays so: a slot that is made after that says nothing of it, under
 * whatever name.
 */
export async function refuseUnfinished(
  db: Queryable,
  { tables }: Pick<Outbox, 'tables'>,
  finished?: SwitchRow,
): Promise<SwitchRow | undefined> {
  const last = await first(db, selectLastSwitch(tables))
  if (last === undefined || last.is_on || last.lsn === null || last.is_done || isSame(last, finished)) return last
  const state = await first(db, selectSlot(last.slot, last.lsn))
  if (state === undefined ? !last.waits : state.reached) return last
  const what =
    state === undefined
      ? `the slot "${last.slot}" is gone, and nobody knows what its connector had published`
      : `the connector of the slot "${last.slot}" has confirmed ${state.confirmed ?? 'nothing'} and has to reach ${last.lsn}, and only it can publish what lies between`
  const [lost, running] = state === undefined || state.lost ? [' --lost', ''] : ['', ' and the connector running']
  throw refused(
    `The switch back to relays is not finished: ${what}. Finish it with \`${cdcCommand(tables.schema, `off --slot ${last.slot}${lost}`)}\`, the relays stopped${running}, and then run this again.`,
  )
}

/**
 * Another slot says nothing of what the connector has published. While dispatch is off, or on since a switch back that waits for it,
 * that stands in the slot that was switched onto; only if that is gone may the connector read from a copy.
 */
export async function refuseOther({ db, outbox, slot }: SlotOptions): Promise<void> {
  const last = await first(db, selectLastSwitch(outbox.tables))
  if (last === undefined || last.slot === '' || last.slot === slot) return
  if (!last.is_on && last.lsn === null) return
  if ((await first(db, selectSlot(last.slot, '0/0'))) === undefined) return
  throw refused(
    `This outbox was switched onto the slot "${last.slot}", not onto "${slot}", of which another connector may read. Pass --slot ${last.slot}. If the connector reads from a copy of it, drop the old one first (select pg_drop_replication_slot('${last.slot}')).`,
  )
}

/**
 * While relays dispatch, a connector has something that they have not only between a switch onto it and the end of the switch back.
 * Before and after that nothing is missing, and to give a slot up would publish everything again.
 */
export async function refuseFinished(tx: Queryable, { outbox }: Pick<SlotOptions, 'outbox'>): Promise<void> {
  const { dispatching } = await one(tx, selectDispatching(outbox.tables))
  const last = await first(tx, selectLastSwitch(outbox.tables))
  if (!dispatching || last?.is_on === true || (last !== undefined && last.lsn !== null && !last.is_done)) return
  const why =
    last === undefined
      ? 'this outbox was never switched onto a connector'
      : `the switch back from the slot "${last.slot}" came to its end`
  throw refused(
    `Relays publish this outbox, and ${why}: with a slot that is gone nothing is lost, so nothing is published again. To publish events once more, use \`waybill replay\`.`,
  )
}

/** In what it differs from the slot that a connector can go on with. */
function otherwise(
  { outbox, slot }: Pick<SlotOptions, 'outbox' | 'slot'>,
  { plugin, made, lost, published }: CdcRow,
  switchedOnto: string,
): string | undefined {
  if (plugin === null) return 'is not there'
  if (lost) return 'has lost its log'
  if (!made) return 'is still being made'
  if (switchedOnto !== '' && switchedOnto !== slot) return 'is another one'
  return published ? undefined : `is without its publication "${cdcPublication(outbox)}"`
}

/** A slot from which the connector can still read all that it has not read. */
export async function readSlot({ db, outbox, slot }: SlotOptions, lsn: string): Promise<SlotRow> {
  const state = await first(db, selectSlot(slot, lsn))
  if (state !== undefined && !state.lost) return state
  const [code, what] =
    state === undefined
      ? (['NOT_FOUND', `There is no logical replication slot "${slot}" in this database.`] as const)
      : (['REFUSED', `The replication slot "${slot}" has lost its log, so its connector can go on no more.`] as const)
  throw new WaybillError(
    code,
    `${what} If the connector used this one, run \`${cdcCommand(outbox.tables.schema, `off --slot ${slot} --lost`)}\`: then relays publish again all that was added since it took over.`,
  )
}

/**
 * Drops a slot that was made for a switch that failed: for one that nobody reads the server would keep its log until the disk is
 * full. It stays if dispatch is off and the slot is the one that was switched onto, because COMMIT was not heard, or because somebody
 * else found the slot and switched: then it is the only place where what is added from now on can be found. It also stays if they
 * have begun to switch back since, for then what was added between stands in it. `before` is the last switch before it was made.
 */
export async function dropUnused({ db, outbox, slot }: SlotOptions, before: SwitchRow | undefined): Promise<void> {
  await transaction(db, async (tx) => {
    await rows(tx, lockDispatching(outbox.tables))
    const { dispatching } = await one(tx, selectDispatching(outbox.tables))
    const last = await first(tx, selectLastSwitch(outbox.tables))
    const onto = (await first(tx, selectSwitchedOn(outbox.tables)))?.slot ?? ''
    const isUnused = dispatching ? last?.slot !== slot || isSame(last, before) : onto !== '' && onto !== slot
    if (isUnused) await rows(tx, dropSlot(slot))
  })
}

function isSame(one: SwitchRow, other: SwitchRow | undefined): boolean {
  return one.is_on === other?.is_on && one.slot === other.slot && one.lsn === other.lsn
}

function refused(message: string): WaybillError {
  return new WaybillError('REFUSED', message)
}
