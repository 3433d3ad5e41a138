/** The one statement on retention_clock that writes, and the one that reads. */
import { name, sql, type Statement } from '../query/sql.ts'

export interface ClockRow {
  /** What the database's clock says, in milliseconds. */
  readonly now_ms: string
  /** JSON: `[{ from, to }]`, in milliseconds, newest first. */
  readonly leaps: string
}

/** More are not remembered: each is an hour's lack of clean-ups, or a clock that is out of order. */
const mostLeaps = 1_000

/**
 * Looks at the clock. What lies between the last look, or the moment that the caller vouches for, and now is a leap, if it is longer
 * than `slackMs`. What a clock that was set back has yet to come to is none any more. Index: primary key.
 */
export function witness(
  schema: string,
  { vouchedMs, slackMs }: { readonly vouchedMs: number; readonly slackMs: number },
): Statement<ClockRow> {
  return sql`
    insert into ${name(schema, 'retention_clock')} as c (one, seen_at) values (true, clock_timestamp())
    on conflict (one) do update set seen_at = excluded.seen_at, leaps = (
      select coalesce(jsonb_agg(jsonb_build_object('from', l.from_ms, 'to', l.to_ms) order by l.to_ms desc), '[]') from (
        select t.known_ms as from_ms, t.now_ms as to_ms
          from (select floor(extract(epoch from excluded.seen_at) * 1000) as now_ms,
                       greatest(floor(extract(epoch from c.seen_at) * 1000), ${vouchedMs}::float8::numeric) as known_ms) t
         where t.now_ms - t.known_ms > ${slackMs}::float8
        union all
        select e."from", least(e."to", floor(extract(epoch from excluded.seen_at) * 1000))
          from jsonb_to_recordset(c.leaps) as e ("from" numeric, "to" numeric)
         where e."from" < floor(extract(epoch from excluded.seen_at) * 1000)
         order by 2 desc limit ${mostLeaps}::int) l)
    returning floor(extract(epoch from c.seen_at) * 1000)::bigint::text as now_ms, c.leaps::text as leaps`
}

/** The same without a look of one's own; no row, if nobody has looked yet. */
export function readWitnessed(schema: string): Statement<ClockRow> {
  return sql`
    select floor(extract(epoch from clock_timestamp()) * 1000)::bigint::text as now_ms, c.leaps::text as leaps from ${name(schema, 'retention_clock')} c`
}
