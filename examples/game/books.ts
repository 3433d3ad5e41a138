/**
 * Whether the books agree: what players have is the sum of what the audit says, and every request was booked once.
 */
import type { Queryable } from 'waybill'

/** Everything that is wrong; nothing, if the books agree. */
export async function checkBooks(db: Queryable): Promise<string[]> {
  const { rows } = await db.query(`
    with booked as (
      select player_id, kind, name, sum(amount)::int as amount from audit group by 1, 2, 3),
    had as (
      select player_id, 'item' as kind, item as name, amount from inventory
      union all select player_id, 'resource', resource, amount from resource)
    select coalesce(b.player_id, h.player_id) || ': ' || coalesce(b.name, h.name) || ' is ' || coalesce(h.amount, 0)
             || ', and the audit says ' || coalesce(b.amount, 0) as problem
      from booked b full join had h on h.player_id = b.player_id and h.kind = b.kind and h.name = b.name
     where coalesce(b.amount, 0) <> coalesce(h.amount, 0)
    union all
    select player_id || ': request ' || request_id || ' was booked more than once' from audit
     group by player_id, request_id, place having count(*) > 1
    union all
    select p.id || ': its last event has other resources than it has'
      from player p
      join lateral (select convert_from(o.payload, 'UTF8')::jsonb -> 'resources' as resources from waybill.outbox o
                     where o.aggregate_type = 'player' and o.aggregate_id = p.id order by o.version desc limit 1) e on true
     where e.resources <> (select coalesce(jsonb_object_agg(resource, amount), '{}') from resource where player_id = p.id)`)
  return (rows as { problem: string }[]).map(({ problem }) => problem)
}

/** The loot of a request as it was booked, in order. */
export async function bookedLoot(db: Queryable, requestId: string): Promise<unknown[]> {
  const { rows } = await db.query(
    `select kind, name, amount, metadata from audit where request_id = $1 and reason = 'use-item' and place > 0 order by id`,
    [requestId],
  )
  return [...rows]
}
