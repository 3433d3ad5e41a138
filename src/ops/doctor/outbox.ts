/**
 * Looks at an outbox, its server and its rows, and says what would lose events, reorder them or make them wait.
 *
 * It only reads. Each finding says what is wrong, what that leads to, and what to do about it.
 */
import { readBacklog } from '../../outbox/tables/backlog.sql.ts'
import { cdcCommand, selectDispatching } from '../../outbox/tables/cdc-switch.sql.ts'
import type { Outbox } from '../../outbox/outbox.ts'
import { listPauses } from '../../outbox/operate/pause.ts'
import { selectSlot } from '../../outbox/tables/retention.sql.ts'
import { first, one, rows, type Queryable } from '../../postgres/query/database.ts'
import {
  selectGuards,
  selectMayReadAudit,
  selectRelaysSince,
  selectServerSettings,
  selectTroubles,
  selectUnlockedWrites,
} from './outbox.sql.ts'
import { selectSwitchedOn } from '../status/outbox.sql.ts'

export type OutboxProblem =
  | 'updates-allowed'
  | 'sequence-cached'
  | 'sequence-behind'
  | 'table-unlogged'
  | 'lanes-differ'
  | 'lane-wrong'
  | 'exposed'
  | 'not-durable'
  | 'isolation'
  | 'bytes'
  | 'event-lost'
  | 'event-missing'
  | 'slot-gone'
  | 'lane-unowned'
  | 'snapshot-old'
  | 'snapshots-hidden'
  | 'parked'
  | 'all-paused'
  | 'unlocked-writes'

export interface OutboxFinding {
  readonly problem: OutboxProblem
  readonly text: string
}

const oldSnapshotMs = 600_000

/** Everything that is wrong; empty if nothing is. */
export async function doctorOutbox(db: Queryable, outbox: Pick<Outbox, 'tables'>): Promise<readonly OutboxFinding[]> {
  const { readable } = await one(db, selectMayReadAudit(outbox.tables.schema))
  return [
    ...(await guardFindings(db, outbox)),
    ...(await serverFindings(db)),
    ...(await rowFindings(db, outbox, readable)),
    ...(await writerFindings(db, outbox)),
    ...(readable ? await connectorFindings(db, outbox) : []),
  ]
}

async function guardFindings(db: Queryable, { tables }: Pick<Outbox, 'tables'>): Promise<OutboxFinding[]> {
  const guards = await one(db, selectGuards(tables))
  const { schema } = tables
  return [
    ...when(
      !guards.append_only,
      'updates-allowed',
      `the trigger outbox_append_only of ${schema}.outbox is off: events can be changed after they were published. Enable it: alter table ${schema}.outbox enable trigger outbox_append_only`,
    ),
    ...when(
      guards.sequence_cache !== '1',
      'sequence-cached',
      `the sequence of ${schema}.outbox_dispatch.seq has cache ${guards.sequence_cache}: versions of an aggregate can get numbers out of order. Set it: alter sequence … cache 1`,
    ),
    ...when(
      guards.sequence_behind,
      'sequence-behind',
      `the sequence of ${schema}.outbox_dispatch.seq is behind its rows, as after a restore or a failover: new events would overtake waiting ones. Stop the writers and set it with setval to the highest seq`,
    ),
    ...when(
      guards.unlogged !== '',
      'table-unlogged',
      `not logged: ${guards.unlogged}. A crash of the server empties them. Change them: alter table … set logged`,
    ),
    ...when(
      guards.lanes_differ,
      'lanes-differ',
      `${schema}.outbox_lane has other lanes than outbox_lanes() says: some events are nobody's. Repair it: waybill outbox lanes --change <number>`,
    ),
    ...when(
      guards.misplaced > 0,
      'lane-wrong',
      `${guards.misplaced} waiting events are in a lane that is not their key's: they can overtake. Repair it: waybill outbox lanes --change <number>`,
    ),
    ...when(
      guards.exposed !== '',
      'exposed',
      `${guards.exposed} can use tables of the schema ${schema}: payloads can be read or events forged. Run: waybill migrate up --roles`,
    ),
  ]
}

async function serverFindings(db: Queryable): Promise<OutboxFinding[]> {
  const server = await one(db, selectServerSettings())
  const off = (['fsync', 'full_page_writes', 'synchronous_commit'] as const).filter((setting) => server[setting] === 'off')
  return [
    ...when(
      off.length > 0,
      'not-durable',
      `${off.join(' and ')} off: a crash can take back a commit whose event was published already. Switch it on`,
    ),
    ...when(
      server.isolation !== 'read committed',
      'isolation',
      `default_transaction_isolation is ${server.isolation}: what relays, retention and the Postgres transport send needs read committed, so each of those statements takes two round trips more. Set it for their role: alter role … set default_transaction_isolation = 'read committed'`,
    ),
    ...when(
      server.bytes !== 'hex',
      'bytes',
      `bytea_output is ${server.bytes}: services on postgres.js refuse to start then, and others read payloads slowly. Set it for all roles that connect: alter role … set bytea_output = 'hex'`,
    ),
  ]
}

/** Who may not read the audit log does not know when relays published and when a connector did: then no event is called lost. */
async function rowFindings(db: Queryable, { tables }: Pick<Outbox, 'tables'>, mayReadAudit: boolean): Promise<OutboxFinding[]> {
  const relaysSince = mayReadAudit ? (await one(db, selectRelaysSince(tables.schema))).since : 'infinity'
  const troubles = await one(db, selectTroubles(tables, relaysSince))
  const { parked, oldestSnapshotAgeMs } = await one(db, readBacklog(tables))
  const all = (await listPauses(db, { tables })).find(({ aggregateType }) => aggregateType === undefined)
  const minutes = Math.round((oldestSnapshotAgeMs ?? 0) / 60_000)
  return [
    ...when(
      troubles.lost !== '',
      'event-lost',
      `events without a dispatch row and without a receipt: ${troubles.lost}. Somebody deleted their dispatch rows, wrote events without add_event, or has a relay without receipts. See first what became of each, here and where it is read: waybill trace <id>. Add again only what nobody has: what arrives twice as two events takes effect twice`,
    ),
    ...when(
      troubles.orphans !== '',
      'event-missing',
      `waiting events whose row is gone: ${troubles.orphans}. Somebody deleted unpublished events. Their relay parks them; drop them: waybill outbox drop`,
    ),
    ...when(
      troubles.unowned_with_work > 0,
      'lane-unowned',
      `${troubles.unowned_with_work} lanes with waiting events have no relay: none runs, an open transaction holds their rows, or the relay is a job (waybill relay --once) and they wait for its next run. See how old the oldest is: waybill status`,
    ),
    ...when(
      (oldestSnapshotAgeMs ?? 0) > oldSnapshotMs,
      'snapshot-old',
      `a transaction has been open for ${minutes} min: vacuum cannot remove what relays delete, and they slow down. Look for it in pg_stat_activity`,
    ),
    ...when(
      oldestSnapshotAgeMs === null,
      'snapshots-hidden',
      `${troubles.role} cannot see how long the transactions of other roles have been open, and one that stays open slows relays down. Let it, and the role of the relays: grant pg_read_all_stats to ${troubles.role} (or pg_monitor, which contains it)`,
    ),
    ...when(
      parked > 0,
      'parked',
      `${parked} events are parked and hold their aggregates. See: waybill outbox list --state parked`,
    ),
    ...when(
      all !== undefined,
      'all-paused',
      `everything is paused, by ${all?.pausedBy} since ${all?.pausedAt}: nothing is published. When it may go on: waybill outbox resume --all`,
    ),
  ]
}

/** What guarded tables have reported. */
async function writerFindings(db: Queryable, { tables: { schema } }: Pick<Outbox, 'tables'>): Promise<OutboxFinding[]> {
  const found = await rows(db, selectUnlockedWrites(schema))
  return found.flatMap(
    ({ relation, aggregate_type: type, aggregate_id: id, role, application, writes, first_at: first, last_at: last }) =>
      when(
        true,
        'unlocked-writes',
        `${relation} was written without the lock of its aggregate, ${writes} times or more between ${first} and ${last}, by role ${role} as "${application}", the last time ${type} ${id}: writers lose each other's changes, and no event follows theirs. Let that program lock the aggregate, add its event or run a command; then delete from ${schema}.unlocked_write`,
      ),
  )
}

/** While a connector publishes, what it has not read stands in the slot that was switched onto, and nowhere else. */
async function connectorFindings(db: Queryable, { tables }: Pick<Outbox, 'tables'>): Promise<OutboxFinding[]> {
  const { dispatching } = await one(db, selectDispatching(tables))
  const switched = dispatching ? undefined : await first(db, selectSwitchedOn(tables))
  if (switched === undefined || switched.slot === '') return []
  const slot = await first(db, selectSlot(switched.slot, '0/0'))
  const what = slot === undefined ? 'is not in this database' : 'has lost its log'
  return when(
    slot === undefined || slot.lost,
    'slot-gone',
    `a connector publishes since ${switched.at}, and its replication slot "${switched.slot}" ${what}: nobody publishes what it had not read, nor what is added. Unless it reads a copy of that slot, stop it, and let relays publish again: ${cdcCommand(tables.schema, `off --slot ${switched.slot} --lost`)}`,
  )
}

function when(isWrong: boolean, problem: OutboxProblem, text: string): OutboxFinding[] {
  return isWrong ? [{ problem, text }] : []
}
