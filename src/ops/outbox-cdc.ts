/**
 * Hands the outbox over from relays to a connector (change data capture), and back, in the only order in which nothing is
 * lost and no version overtakes another.
 *
 *   on   publication, slot ──▶ no more dispatch rows ──▶ relays drain what is left ──▶ start the connector
 *   off  relays stopped ──▶ dispatch rows again ──▶ the connector passes that point ──▶ stop it, start the relays
 *
 * What both publish around the change is a duplicate, never a gap. Each step is repeatable: after an interruption the same
 * call goes on.
 *
 * A slot that is gone took its place in the log with it. A new one would begin now, so nobody would ever publish what lies
 * between: then the relays publish again all that was added since the connector took over (`giveUpSlot`).
 */
import { systemClock, type Clock } from '../core/clock.ts'
import { defaults } from '../core/defaults.ts'
import { isWaybillError, WaybillError } from '../core/errors.ts'
import { first, one, rows, type Database, type Queryable } from '../postgres/database.ts'
import { insertAudit } from '../postgres/migrate.sql.ts'
import { isLockTimeout } from '../postgres/sql-state.ts'
import { transaction } from '../postgres/transaction.ts'
import { countDated, readPauses } from '../outbox/dispatch.sql.ts'
import type { Outbox } from '../outbox/outbox.ts'
import { selectSlot, type SlotRow } from '../outbox/retention.sql.ts'
import {
  callSetDispatching,
  countWaiting,
  createPublication,
  createSlot,
  dispatchAgain,
  dropSlot,
  selectCdc,
  selectDispatching,
  selectLsn,
  selectRelays,
  selectSlots,
  selectSwitchedOn,
} from './outbox.sql.ts'

export interface CdcOptions {
  readonly db: Database
  readonly outbox: Pick<Outbox, 'tables'>
  /** The replication slot of the connector. */
  readonly slot: string
  /** Who does it, for the audit log. */
  readonly actor: string
  /** Aborting it stops the waiting; what was done stays, and the same call goes on later. */
  readonly signal?: AbortSignal
  /** Told what it waits for. */
  readonly onProgress?: (text: string) => void
  readonly clock?: Clock
}

export interface CdcStatus {
  readonly dispatching: boolean
  readonly slots: readonly {
    readonly slot: string
    readonly plugin: string
    readonly active: boolean
    readonly lagBytes: number | undefined
  }[]
}

const lookEveryMs = 500
const tellEveryMs = 5_000

/** The publication that a connector subscribes to. */
export function cdcPublication(outbox: Pick<Outbox, 'tables'>): string {
  return `${outbox.tables.schema}_outbox`
}

export async function cdcStatus(db: Queryable, outbox: Pick<Outbox, 'tables'>): Promise<CdcStatus> {
  const slots = await rows(db, selectSlots())
  return {
    dispatching: (await one(db, selectDispatching(outbox.tables))).dispatching,
    slots: slots.map(({ lag_bytes: lagBytes, ...slot }) => ({ ...slot, lagBytes: lagBytes ?? undefined })),
  }
}

/** Resolves when the relays have drained the outbox: then, and not before, the connector may be started. */
export async function switchCdcOn(options: CdcOptions): Promise<void> {
  const { db, outbox, slot, actor } = options
  const publication = cdcPublication(outbox)
  const found = await one(db, selectCdc(slot, publication))
  if (found.wal_level !== 'logical') {
    throw new WaybillError(
      'REFUSED',
      `The server writes too little into its log for a connector: set wal_level = logical (it is ${found.wal_level}) and restart it.`,
    )
  }
  if (found.plugin !== null && found.plugin !== 'pgoutput')
    throw new WaybillError('REFUSED', `The replication slot "${slot}" is there, but of ${found.plugin}, not of pgoutput.`)
  if (found.plugin === null || found.lost) await refuseNewSlot(options)
  await countDrainable(db, outbox)
  if (!found.published) await rows(db, createPublication(outbox.tables, publication))
  if (found.plugin === null) await rows(db, createSlot(slot))
  try {
    await setDispatching(db, outbox, { dispatching: false, details: { slot, publication }, actor })
  } catch (error) {
    // For a slot that nobody reads the server would keep its log until the disk is full. If the switch may have taken effect
    // after all, this slot is the only place where what is added from now on can be found.
    const mayBeSwitched = isWaybillError(error) && error.code === 'COMMIT_UNKNOWN'
    if (found.plugin === null && !mayBeSwitched) await rows(db, dropSlot(slot)).catch(() => undefined)
    throw error
  }
  await until(options, async () => {
    const waiting = await countDrainable(db, outbox).catch(explainSwitched)
    return waiting === 0 ? true : `${waiting} events wait for a relay. Relays must run until they are out.`
  })
}

/** While a connector publishes, what was added since its slot confirmed something for the last time stands in that slot alone. */
async function refuseNewSlot({ db, outbox, slot }: CdcOptions): Promise<void> {
  if ((await one(db, selectDispatching(outbox.tables))).dispatching) return
  const switched = await first(db, selectSwitchedOn(outbox.tables))
  const since = switched === undefined ? '' : ` since ${switched.at}, with the slot "${switched.slot}"`
  throw new WaybillError(
    'REFUSED',
    `Relays have not dispatched${since}, and the slot "${slot}" is not there or has lost its log. A new one would begin now, and nobody would publish what the connector had not read. If the connector's slot is there under another name, pass that. If it is gone, run \`waybill outbox cdc off --slot ${switched?.slot ?? slot} --lost\`, start relays, and run this again when you like.`,
  )
}

/**
 * How many events relays have to publish before a connector may start. REFUSED if some of them cannot go out: after the
 * switch nobody would publish anything new until they can.
 */
async function countDrainable(db: Queryable, { tables }: Pick<Outbox, 'tables'>): Promise<number> {
  const { waiting, parked } = await one(db, countWaiting(tables))
  if (parked > 0)
    throw new WaybillError('REFUSED', `${parked} events are parked. Redrive, skip or drop them, and run this again.`)
  const [paused] = await rows(db, readPauses(tables))
  if (paused !== undefined) {
    const what = `${paused.aggregate_type} ${paused.aggregate_id}`.trim()
    throw new WaybillError('REFUSED', `${what} is paused, and a connector heeds no pause. Resume it, and run this again.`)
  }
  const { dated, last_date: lastDate } = await one(db, countDated(tables))
  if (dated > 0) {
    throw new WaybillError(
      'REFUSED',
      `${dated} events wait for a date, the last one for ${lastDate}. A connector may start only when they are out, and from the switch until then nobody publishes what is added. Add no more of them, and run this again after that date.`,
    )
  }
  return waiting
}

function explainSwitched(cause: unknown): never {
  if (!isWaybillError(cause)) throw cause
  const { code, message } = cause
  throw new WaybillError(code, `${message} Dispatch is off already: until this is done, nobody publishes what is added.`, {
    cause,
  })
}

/** Resolves when the connector has everything that only it can publish: then it may be stopped, and relays started. */
export async function switchCdcOff(options: CdcOptions): Promise<void> {
  const { db, outbox, slot, actor } = options
  await readSlot(options, '0/0')
  await refuseRelays(options)
  await setDispatching(db, outbox, { dispatching: true, details: { slot }, actor })
  const { lsn } = await one(db, selectLsn())
  await until(options, async () => {
    await refuseRelays(options)
    const { reached, confirmed } = await readSlot(options, lsn)
    if (reached) return true
    return `The connector has confirmed ${confirmed ?? 'nothing'} and has to reach ${lsn}. It must run until then.`
  })
}

/** A slot from which the connector can still read all that it has not read. */
async function readSlot({ db, slot }: CdcOptions, lsn: string): Promise<SlotRow> {
  const state = await first(db, selectSlot(slot, lsn))
  if (state !== undefined && !state.lost) return state
  const [code, what] =
    state === undefined
      ? (['NOT_FOUND', `There is no logical replication slot "${slot}" in this database.`] as const)
      : (['REFUSED', `The replication slot "${slot}" has lost its log, so its connector can go on no more.`] as const)
  throw new WaybillError(
    code,
    `${what} If the connector used this one, pass --lost: then relays publish again all that was added since it took over.`,
  )
}

/**
 * Goes back to relays without a connector, whose slot is gone: they publish again all that was added since it took over. Nobody
 * knows how much of it the connector had published: that much is doubled on the wire, and readers remove it as ever. Resolves to
 * the number of events.
 */
export async function giveUpSlot(options: CdcOptions): Promise<number> {
  const { db, outbox, slot, actor } = options
  const { tables } = outbox
  const state = await first(db, selectSlot(slot, '0/0'))
  if (state !== undefined && !state.lost) {
    throw new WaybillError(
      'REFUSED',
      `The replication slot "${slot}" has its log, so a connector can go on from it. Run this without --lost, or drop the slot first.`,
    )
  }
  await refuseRelays(options)
  const work = async (tx: Queryable): Promise<number> => {
    const switched = await first(tx, selectSwitchedOn(tables))
    await rows(tx, callSetDispatching(tables, true)).catch(explainBusy)
    const { events } = await one(tx, dispatchAgain(tables, switched?.at ?? '-infinity'))
    const details = { slot, events, since: switched?.at ?? null }
    await one(tx, insertAudit(tables.schema, { actor, action: 'outbox.cdc-off', details }))
    return events
  }
  return await transaction(db, work, { statementTimeoutMs: 0 })
}

async function setDispatching(
  db: Database,
  { tables }: Pick<Outbox, 'tables'>,
  change: { readonly dispatching: boolean; readonly actor: string; readonly details: Readonly<Record<string, unknown>> },
): Promise<void> {
  await transaction(db, async (tx) => {
    if ((await one(tx, selectDispatching(tables))).dispatching === change.dispatching) return
    await rows(tx, callSetDispatching(tables, change.dispatching)).catch(explainBusy)
    // Again, behind the lock of the switch: no writer can come in between any more, and a refusal undoes it.
    if (!change.dispatching) await countDrainable(tx, { tables })
    const action = change.dispatching ? 'outbox.cdc-off' : 'outbox.cdc-on'
    await one(tx, insertAudit(tables.schema, { actor: change.actor, action, details: change.details }))
  })
}

/** Whoever adds events waits behind this lock as well, so it is not waited for long. What deletes or vacuums holds it up, too. */
function explainBusy(cause: unknown): never {
  if (!isLockTimeout(cause)) throw cause
  throw new WaybillError(
    'TIMEOUT',
    'A transaction that writes the outbox, or its maintenance, goes on for longer than this waits, since all others that add events would wait behind it. Nothing was switched. Let it end, or end it (pg_stat_activity), and run this again.',
    { cause },
  )
}

/** A relay would publish the new events before the connector has published the ones before them. */
async function refuseRelays({ db, outbox }: CdcOptions): Promise<void> {
  const relays = await rows(db, selectRelays(outbox.tables, defaults.relay.leaseMs))
  if (relays.length === 0) return
  const names = relays.map(({ relay }) => relay).join(', ')
  throw new WaybillError(
    'REFUSED',
    `Relays are running (${names}). Stop them first, and start them when the connector has stopped. One that was killed counts until its leases end.`,
  )
}

async function until({ signal, onProgress, clock = systemClock }: CdcOptions, look: () => Promise<true | string>): Promise<void> {
  let tellAt = 0
  for (;;) {
    const seen = await look()
    if (seen === true) return
    if (signal?.aborted === true) throw new WaybillError('ABORTED', `Interrupted. ${seen} Run the same command again to go on.`)
    if (clock.monotonicMs() >= tellAt) {
      onProgress?.(seen)
      tellAt = clock.monotonicMs() + tellEveryMs
    }
    await clock.sleep(lookEveryMs, signal)
  }
}
