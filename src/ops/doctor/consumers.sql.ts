/** What the doctor looks at in the tables of consumers. */
import type { InboxTables } from '../../consumer/tables/inbox.sql.ts'
import { sql, type Statement } from '../../postgres/query/sql.ts'

/**
 * Letters that nobody has settled although the inbox has their event, up to `bound` of them, and the numbers of the first.
 * Indexes: dead_letter_group_idx, the primary key of inbox.
 */
export function selectAppliedLetters(tables: InboxTables, bound: number): Statement<{ count: number; some: string }> {
  return sql`
    select count(*)::int as count, coalesce(string_agg(a.id::text, ',' order by a.id) filter (where a.place <= 100), '') as some
      from (select d.id, row_number() over (order by d.id) as place
              from (select d.id from ${tables.deadLetter} d where d.state = 'dead'
                     and exists (select from ${tables.inbox} i where i.consumer = d.consumer and i.generation = d.generation and i.event_id = d.event_id)
                     limit ${bound}::int) d) a`
}
