/**
 * The statements on the sample of refused messages.
 *
 * Each reason has 100 slots. A slot is free when nothing is in it, or something older than a day; so the sample is bounded whoever writes
 * at the same time, and shows the attack of today. Writers choose by chance, so that two of them rarely choose the same, and write in order,
 * so that they wait in one direction.
 */
import type { Distrust } from '../../core/event/signing.ts'
import { sql, sqlArray, sqlBytesArray, type Statement } from '../../postgres/query/sql.ts'
import { storableMoment, storableText } from '../../postgres/query/storable.ts'
import { attributesJson, storableKey, type InboxTables } from './inbox.sql.ts'
import type { RawMessage } from '../model/received-event.ts'

export const slotsPerReason = 100
const keptBodyBytes = 4_096
const keptTextLength = 1_024
const keptAttributes = 100

/** Keeps as many of the messages as there are free slots. Index: the primary key. */
export function keepRefused(
  { refused }: InboxTables,
  { consumer, reason, messages }: { consumer: string; reason: Distrust; messages: readonly RawMessage[] },
): Statement {
  const column = (of: (message: RawMessage) => string | number | null): string => sqlArray(messages.map(of))
  return sql`
    with free as materialized (
      select s.slot, row_number() over (order by r.refused_at nulls first, random()) as place
        from generate_series(1, ${slotsPerReason}::int) as s (slot)
        left join ${refused} r on r.consumer = ${consumer}::text and r.reason = ${reason}::text and r.slot = s.slot
       where r.slot is null or r.refused_at < clock_timestamp() - interval '1 day'
    )
    insert into ${refused} as r (consumer, reason, slot, topic, message_id, ordering_key, attributes, body, body_bytes, published_at)
    select ${consumer}::text, ${reason}::text, f.slot, m.topic, m.message_id, m.ordering_key, m.attributes, m.body, m.body_bytes, m.published_at
      from unnest(${column(({ topic }) => topic)}::text::text[], ${column(({ messageId }) => cut(messageId))}::text::text[],
                  ${column(({ orderingKey }) => storableKey(orderingKey === undefined ? undefined : cut(orderingKey)))}::text::text[],
                  ${column(({ attributes }) => keptJson(attributes))}::text::jsonb[],
                  ${sqlBytesArray(messages.map(({ body }) => body.subarray(0, keptBodyBytes)))}::text::bytea[],
                  ${column(({ body }) => body.byteLength)}::text::bigint[],
                  ${column(({ publishedAtMs }) => storableMoment(publishedAtMs))}::text::timestamptz[])
             with ordinality as m (topic, message_id, ordering_key, attributes, body, body_bytes, published_at, place)
      join free f on f.place = m.place
     order by f.slot
    on conflict (consumer, reason, slot) do update
      set topic = excluded.topic, message_id = excluded.message_id, ordering_key = excluded.ordering_key, attributes = excluded.attributes,
          body = excluded.body, body_bytes = excluded.body_bytes, published_at = excluded.published_at, refused_at = excluded.refused_at
      where r.refused_at < clock_timestamp() - interval '1 day'`
}

export interface RefusedCountRow {
  readonly consumer: string
  readonly reason: Distrust
  readonly count: number
  readonly newest_at: string
  readonly recent: number
}

/** How many are kept, by consumer and reason, and how many of them are of the last day. */
export function countRefused({ refused }: InboxTables): Statement<RefusedCountRow> {
  return sql`
    select r.consumer, r.reason, count(*)::int as count,
           to_char(max(r.refused_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as newest_at,
           (count(*) filter (where r.refused_at > clock_timestamp() - interval '1 day'))::int as recent
      from ${refused} r group by 1, 2 order by 1, 2`
}

export interface RefusedRow {
  readonly consumer: string
  readonly reason: Distrust
  readonly topic: string
  readonly message_id: string
  readonly attributes: string
  readonly body: Uint8Array
  readonly body_bytes: string
  readonly refused_at: string
}

/** Those that are kept, newest first. */
export function selectRefused(
  { refused }: InboxTables,
  { consumer, reason, limit }: { consumer: string | undefined; reason: string | undefined; limit: number },
): Statement<RefusedRow> {
  return sql`
    select r.consumer, r.reason, r.topic, r.message_id, r.attributes::text as attributes, r.body, r.body_bytes::text as body_bytes,
           to_char(r.refused_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as refused_at
      from ${refused} r
     where (${consumer ?? null}::text is null or r.consumer = ${consumer ?? null}::text)
       and (${reason ?? null}::text is null or r.reason = ${reason ?? null}::text)
     order by r.refused_at desc, r.consumer, r.reason, r.slot limit ${limit}::int`
}

/** Somebody else chose how many there are, and how long. */
function keptJson(attributes: RawMessage['attributes']): string {
  const kept = Object.entries(attributes).slice(0, keptAttributes)
  return attributesJson(Object.fromEntries(kept.map(([name, value]) => [cut(name), cut(value)])))
}

function cut(text: string): string {
  return storableText(text.slice(0, keptTextLength))
}
