/**
 * The catalog as a consumer: what it does with the owner's events. Its own process runs it; the page asks it what it projects.
 */
import {
  createConsumer,
  createSignals,
  type ConsumedEvent,
  type Consumer,
  type Database,
  type HandlerContext,
  type SignalBus,
  type Transport,
} from 'waybill'
import { players, streams, videos } from './streams.ts'

export interface CatalogOptions {
  readonly db: Database
  readonly transport: Transport
  readonly name: string
  readonly signals?: SignalBus
}

export function createCatalog({ db, transport, name, signals = createSignals() }: CatalogOptions): Consumer {
  return createConsumer({ db, transport, name, streams, signals })
    .project(videos, {
      table: 'public.catalog_video',
      key: 'video_id',
      set: ({ data }) => ({ title: data.title, edit: data.edit }),
    })
    .project(players, {
      table: 'public.catalog_player',
      key: 'player_id',
      set: ({ data }) => ({ resources: data.resources }),
    })
    .on(videos.VideoPublished, takeEffect)
    .on(players.PlayerChanged, takeEffect)
}

/** Stands for whatever must happen once per event: a mail, a booking, a call for help. */
async function takeEffect({ id, aggregateType, aggregateId, version }: ConsumedEvent, { tx }: HandlerContext): Promise<void> {
  await tx.query(
    `insert into effect (event_id, aggregate_type, aggregate_id, version) values ($1::text::uuid, $2, $3, $4::text::bigint)`,
    [id, aggregateType, aggregateId, String(version)],
  )
}
