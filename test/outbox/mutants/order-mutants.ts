/**
 * Mutants that break the order of an aggregate, or lose what commits late: how events are read, published and removed.
 */
import { relaySteps } from '../../../src/outbox/relay/steps.ts'
import { confirmDispatch, type DispatchRow } from '../../../src/outbox/tables/dispatch.sql.ts'
import { one, rows } from '../../../src/postgres/query/database.ts'
import { sql } from '../../../src/postgres/query/sql.ts'
import { lanesOf } from '../../../src/postgres/lanes/lanes.sql.ts'
import { changedStatement, changeFunction, type Mutant } from './mutant.ts'

/** Trusts that rows behind a head were held when the head failed; those that commit later are let through. */
export const letThroughBehindHead: Mutant = {
  steps: {
    read: async (context, request) => (await relaySteps.read(context, request)).map((row) => ({ ...row, blocked: false })),
  },
}

/** Reads the heads first and what is due after, in two snapshots. `between` runs in the gap. */
export function twoSnapshotRead(between: () => Promise<void>): Mutant {
  const read: typeof relaySteps.read = async (context, request) => {
    const { db, tables } = context
    const heads = await rows(
      db,
      sql<{ key: string; seq: string }>`
        select key::text, seq::text from ${tables.dispatch} where lane = any (${lanesOf(request.lanes)}::text::smallint[]) and state in (1, 3)`,
    )
    await between()
    const isBlocked = (row: DispatchRow): boolean =>
      heads.some((head) => head.key === row.key && BigInt(head.seq) < BigInt(row.seq))
    return (await relaySteps.read(context, request)).map((row) => ({
      ...row,
      blocked: row.state === 0 && isBlocked(row),
    }))
  }
  return { steps: { read }, prepare: (fixture) => changeFunction(fixture, 'outbox_read', [/ and l\.lock_token = t\.token/, '']) }
}

/** Remembers the highest sequence number it has seen and never looks below it again. */
export function cursorPolling(): Mutant {
  let last = 0n
  return {
    steps: {
      read: async (context, request) => {
        const found = (await relaySteps.read(context, request)).filter((row) => row.state !== 0 || BigInt(row.seq) > last)
        for (const row of found) if (BigInt(row.seq) > last) last = BigInt(row.seq)
        return found
      },
    },
  }
}

/** Publishes what follows a failure, and takes its confirmation for granted. */
export const continueAfterFailure: Mutant = {
  publisher: ({ maxBytes, publish }) => ({
    maxBytes,
    publish: (messages, options) =>
      publish(
        messages.map((message) => ({ ...message, orderingKey: undefined })),
        options,
      ),
  }),
  steps: {
    decide: (plan, outcomes, rules) => {
      const decision = relaySteps.decide(plan, outcomes, rules)
      const sent = plan.runs.flatMap((run) => run.rows)
      const settled = sent.flatMap(({ lane, seq, event_id: eventId }, index) => {
        const outcome = outcomes[index]
        return outcome?.status === 'confirmed' ? [{ lane, seq, eventId, messageId: outcome.messageId }] : []
      })
      return { ...decision, confirmed: [], settlement: { ...decision.settlement, confirmed: settled } }
    },
  },
}

/** Removes everything from the first to the last row that was confirmed. */
export const rangeDelete: Mutant = {
  steps: {
    confirm: async ({ db, tables }, { lanes, confirmed }) => {
      for (const { lane } of lanes) {
        const seqs = confirmed.filter((row) => row.lane === lane).map((row) => Number(row.seq))
        await db.query(`delete from ${tables.dispatch.quoted} where lane = $1 and state = 0 and seq between $2 and $3`, [
          lane,
          Math.min(...seqs),
          Math.max(...seqs),
        ])
      }
      return lanes.map(({ lane }) => lane)
    },
  },
}

/** Removes by lane and number, not by the event's own identity. */
export const deleteBySequenceOnly: Mutant = {
  steps: {
    confirm: async ({ db, tables, relay, keep }, { lanes, confirmed }) => {
      const statement = changedStatement(confirmDispatch(tables, relay, lanes, confirmed, keep), [
        / and x\.event_id = k\.event_id/,
        '',
      ])
      return JSON.parse((await one(db, statement)).mine) as number[]
    },
  },
}

/** Hides events whose row is gone, so that those behind them go out as if nothing was missing. */
export const innerJoin: Mutant = {
  prepare: (fixture) => changeFunction(fixture, 'outbox_read', [/left join/, 'join']),
}

/** Takes the version from what is there already, without locking the aggregate; the unique key that would refuse it is gone. */
export const versionOutsideLock: Mutant = {
  prepare: async (fixture) => {
    const { db, outbox } = fixture
    await db.query(`alter table ${outbox.tables.outbox.quoted} drop constraint outbox_aggregate_type_aggregate_id_version_key`)
    await changeFunction(fixture, 'add_event', [
      /insert into \S+\.aggregate_version as a[\s\S]*?returning a\.version into add_event\.version;/,
      `select coalesce(max(o.version), 0) + 1 into add_event.version from ${outbox.tables.outbox.quoted} o
        where o.aggregate_type = add_event.aggregate_type and o.aggregate_id = add_event.aggregate_id;`,
    ])
  },
}

/** Takes the place in line before the aggregate is locked. The advisory lock is where a test holds the writer up. */
export const placeBeforeLock: Mutant = {
  prepare: async (fixture) => {
    const dispatch = fixture.outbox.tables.dispatch.quoted
    await changeFunction(
      fixture,
      'add_event',
      [
        /declare\s+key\s+bigint;/,
        `declare
           key bigint;
           place bigint := nextval(pg_get_serial_sequence('${dispatch}', 'seq'));
           gate text := case current_setting('waybill_test.gate', true) when 'shut' then pg_advisory_xact_lock(20250101)::text end;`,
      ],
      [
        /insert into \S+\.outbox_dispatch as d \(lane, key, event_id, next_retry_at\)\s+values \(/,
        `insert into ${dispatch} as d (seq, lane, key, event_id, next_retry_at) overriding system value values (place, `,
      ],
    )
  },
}
