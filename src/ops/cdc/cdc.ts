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
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { isWaybillError, WaybillError } from '../../core/errors.ts'
import { first, one, rows, type Database, type Queryable } from '../../postgres/query/database.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { isLockTimeout } from '../../postgres/query/sql-state.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { cdcCommand, lockDispatching, selectDispatching } from '../../outbox/tables/cdc-switch.sql.ts'
import { countDated, readPauses } from '../../outbox/tables/dispatch.sql.ts'
import type { Outbox } from '../../outbox/outbox.ts'
import { selectSlot } from '../../outbox/tables/retention.sql.ts'
import {
  cdcPublication,
  dropUnused,
  findCdc,
  readSlot,
  refuseAnother,
  refuseFinished,
  refuseGone,
  refuseOther,
  refuseUnfinished,
  refuseUnfit,
} from './slot.ts'
import {
  callSetDispatching,
  countWaiting,
  createPublication,
  createSlot,
  dispatchAgain,
  selectLastSwitch,
  selectLsn,
  selectRelays,
  selectSlots,
  selectSwitchedOn,
  type CdcRow,
  type SwitchRow,
} from '../status/outbox.sql.ts'

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

export async function cdcStatus(db: Queryable, outbox: Pick<Outbox, 'tables'>): Promise<CdcStatus> {
  const slots = await rows(db, selectSlots())
  return {
    dispatching: (await one(db, selectDispatching(outbox.tables))).dispatching,
    slots: slots.map(({ lag_bytes: lagBytes, ...slot }) => ({ ...slot, lagBytes: lagBytes ?? undefined })),
  }
}

/** Resolves when the relays have drained the outbox: then, and not before, the connector may be started. */
export async function switchCdcOn(options: CdcOptions): Promise<void> {
  const { db, outbox } = options
  const found = await findCdc(db, options)
  if (found.wal_level !== 'logical') {
    throw new WaybillError(
      'REFUSED',
      `The server writes too little into its log for a connector: set wal_level = logical (it is ${found.wal_level}) and restart it.`,
    )
  }
  const { dispatching } = await one(db, selectDispatching(outbox.tables))
  if (dispatching) await stopDispatching(options, found)
  await refuseAnother(options, await findCdc(db, options))
  await until(options, async () => {
    await readSlot(options, '0/0').catch(explainOff)
    const waiting = await countDrainable(db, outbox).catch(explainOff)
    return waiting === 0 ? true : `${waitForRelay(waiting)}. Relays must run until none does.`
  })
}

async function stopDispatching(options: CdcOptions, found: CdcRow): Promise<void> {
  const { db, outbox, slot, actor } = options
  const publication = cdcPublication(outbox)
  const isMine = found.plugin === null
  const last = await refuseUnfinished(db, outbox)
  if (!isMine) refuseUnfit(options, found)
  await countDrainable(db, outbox)
  if (!found.published) await rows(db, createPublication(outbox.tables, publication))
  if (isMine) await rows(db, createSlot(slot))
  const check = async (tx: Queryable): Promise<void> => {
    await refuseUnfinished(tx, outbox, last)
    refuseGone(options, await findCdc(tx, options))
    await countDrainable(tx, outbox)
  }
  try {
    const hasSwitched = await setDispatching(options, { dispatching: false, details: { slot, publication }, actor, check })
    if (!hasSwitched) await refuseAnother(options, await findCdc(db, options))
  } catch (error) {
    if (isMine) await dropUnused(options, last).catch(() => undefined)
    throw error
  }
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
    const what = `${paused.aggregate_type} ${paused.aggregate_id}`.trim() || 'Everything'
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

function waitForRelay(events: number): string {
  return events === 1 ? '1 event waits for a relay' : `${events} events wait for a relay`
}

function explainOff(cause: unknown): never {
  explainSwitched(cause, 'Dispatch is off already: until this is done, nobody publishes what is added.')
}

function explainOn(cause: unknown): never {
  explainSwitched(cause, 'Dispatch is on already: until this is done, what relays publish overtakes the connector.')
}

function explainSwitched(cause: unknown, what: string): never {
  if (!isWaybillError(cause)) throw cause
  throw new WaybillError(cause.code, `${cause.message} ${what}`, { cause })
}

/** Resolves when the connector has everything that only it can publish: then it may be stopped, and relays started. */
export async function switchCdcOff(options: CdcOptions): Promise<void> {
  const { db, outbox, slot, actor } = options
  await readSlot(options, '0/0')
  await refuseOther(options)
  await refuseRelays(options)
  const check = (tx: Queryable): Promise<void> => refuseWaiting(tx, options)
  await setDispatching(options, { dispatching: true, details: { slot, waits: true }, actor, check })
  const last = await first(db, selectLastSwitch(outbox.tables))
  const { lsn } = await one(db, selectLsn())
  await until(options, async () => {
    await refuseRelays(options).catch(explainOn)
    const { reached, confirmed } = await readSlot(options, lsn)
    if (reached) return true
    return `The connector has confirmed ${confirmed ?? 'nothing'} and has to reach ${lsn}. It must run until then.`
  })
  await recordDone(options, last)
}

/** The slot will be dropped, and then nothing else tells this end from an interruption. */
async function recordDone({ db, outbox, slot, actor }: CdcOptions, last: SwitchRow | undefined): Promise<void> {
  if (last === undefined || last.is_on || last.lsn === null || last.is_done) return
  const details = { slot, lsn: last.lsn }
  await one(db, insertAudit(outbox.tables.schema, { actor, action: 'outbox.cdc-off-done', details }))
}

/** What relays have not published since before the switch is older than all that the connector publishes: it would come after it. */
async function refuseWaiting(tx: Queryable, { outbox, slot }: CdcOptions): Promise<void> {
  const { waiting } = await one(tx, countWaiting(outbox.tables))
  if (waiting === 0) return
  throw new WaybillError(
    'REFUSED',
    `${waitForRelay(waiting)}, since before the connector took over, and would come after newer ones. Stop the connector, let relays drain the outbox (run \`${cdcCommand(outbox.tables.schema, `on --slot ${slot}`)}\` again), and then run this again. If the connector never ran, drop the slot instead, and pass --lost. Nothing was switched.`,
  )
}

/**
 * Goes back to relays without a connector, whose slot is gone: they publish again all that was added since it took over. Nobody
 * knows how much of it the connector had published: that much is doubled on the wire, and readers remove it as ever. Resolves to
 * the number of events. REFUSED where no connector has anything that relays have not.
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
  await refuseOther(options)
  await refuseRelays(options)
  const work = async (tx: Queryable): Promise<number> => {
    await rows(tx, lockDispatching(tables)).catch(explainBusy)
    await refuseFinished(tx, options)
    const switched = await first(tx, selectSwitchedOn(tables))
    await rows(tx, callSetDispatching(tables, true)).catch(explainBusy)
    const { events } = await one(tx, dispatchAgain(tables, switched?.at ?? '-infinity'))
    const details = { slot, events, since: switched?.at ?? null }
    await one(tx, insertAudit(tables.schema, { actor, action: 'outbox.cdc-off', details }))
    return events
  }
  return await transaction(db, work, { statementTimeoutMs: 0 })
}

interface Change {
  readonly dispatching: boolean
  readonly actor: string
  readonly details: Readonly<Record<string, unknown>>
  /** Behind the lock of the switch: no writer can come in between any more, and a refusal undoes it. */
  readonly check: (tx: Queryable) => Promise<void>
}

/** Resolves to whether it switched: another may have. Behind its lock, all that was added before stands in the log before `lsn`. */
async function setDispatching({ db, outbox: { tables } }: CdcOptions, change: Change): Promise<boolean> {
  return await transaction(db, async (tx) => {
    if ((await one(tx, selectDispatching(tables))).dispatching === change.dispatching) return false
    await rows(tx, callSetDispatching(tables, change.dispatching)).catch(explainBusy)
    await change.check(tx)
    const action = change.dispatching ? 'outbox.cdc-off' : 'outbox.cdc-on'
    const details = { ...change.details, ...(await one(tx, selectLsn())) }
    await one(tx, insertAudit(tables.schema, { actor: change.actor, action, details }))
    return true
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
