/**
 * The journey of one event through both services: recorded, published, applied, and where its projection is now.
 */
import type { Queryable } from 'waybill'

export interface Step {
  readonly place: string
  /** `undefined` while it has not got there. */
  readonly atMs: number | undefined
  readonly details: Readonly<Record<string, string>>
}

export interface Journey {
  readonly eventId: string
  readonly title: string
  readonly steps: readonly Step[]
}

interface OwnerRow {
  readonly event_type: string
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly version: string
  readonly state: string
  readonly attempts: number
  readonly lane: number | null
  readonly message_id: string | null
  readonly relay: string | null
  readonly occurred_ms: number
  readonly published_ms: number | null
}

interface ReaderRow {
  readonly generation: number | null
  readonly inbox_ms: number | null
  readonly effects: number
  readonly effect_ms: number | null
  readonly position: string | null
  readonly projected: string | null
}

/** `undefined` if the owner has no such event. */
export async function journeyOf(
  { video, catalog, consumer }: { readonly video: Queryable; readonly catalog: Queryable; readonly consumer: string },
  eventId: string,
): Promise<Journey | undefined> {
  const [owner] = (await video.query(ownerQuery, [eventId])).rows as OwnerRow[]
  if (owner === undefined) return undefined
  const [reader] = (await catalog.query(readerQuery, [eventId, consumer, owner.aggregate_type, owner.aggregate_id]))
    .rows as ReaderRow[]
  const { aggregate_type: type, aggregate_id: id, version } = owner
  return {
    eventId,
    title: `${owner.event_type} · ${type} ${id} · version ${version}`,
    steps: [
      { place: 'Committed with its state change', atMs: owner.occurred_ms, details: { table: 'outbox', state: owner.state } },
      {
        place: 'Confirmed by the broker',
        atMs: owner.published_ms ?? undefined,
        details: texts({ table: 'outbox_receipt', attempts: owner.attempts, message: owner.message_id, relay: owner.relay }),
      },
      {
        place: 'Taken into the inbox',
        atMs: reader?.inbox_ms ?? undefined,
        details: texts({ table: 'inbox', consumer, generation: reader?.generation }),
      },
      { place: 'Took effect', atMs: reader?.effect_ms ?? undefined, details: texts({ times: reader?.effects }) },
      {
        place: 'Projection now',
        atMs: undefined,
        details: texts({ version: reader?.projected, position: reader?.position }),
      },
    ],
  }
}

const ownerQuery = `
  select s.event_type, s.aggregate_type, s.aggregate_id, s.version::text as version, s.state, s.publish_attempts as attempts, s.lane,
         s.message_id, (select r.relay from waybill.outbox_receipt r where r.event_id = s.id limit 1) as relay,
         extract(epoch from s.occurred_at)::float8 * 1000 as occurred_ms, extract(epoch from s.published_at)::float8 * 1000 as published_ms
    from waybill.outbox_status s where s.id = $1::text::uuid`

const readerQuery = `
  select i.generation, extract(epoch from i.processed_at)::float8 * 1000 as inbox_ms,
         (select count(*)::int from effect where event_id = $1::text::uuid) as effects,
         (select extract(epoch from min(at))::float8 * 1000 from effect where event_id = $1::text::uuid) as effect_ms,
         p.version::text as position,
         case $3 when 'video' then (select version::text from catalog_video where video_id = $4)
                 else (select version::text from catalog_player where player_id = $4) end as projected
    from (select 1) one
    left join waybill.inbox i on i.consumer = $2 and i.event_id = $1::text::uuid
    left join waybill.consumer_position p on p.consumer = $2 and p.aggregate_type = $3 and p.aggregate_id = $4`

function texts(details: Readonly<Record<string, string | number | null | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(details).flatMap(([name, value]) => (value === null || value === undefined ? [] : [[name, String(value)]])),
  )
}
