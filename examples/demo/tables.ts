/**
 * The two databases: the owner's, with videos and the game, and the catalog's, with what it read.
 *
 * `effect` stands for whatever a reader does once per event (a mail, a booking). It has no unique key on purpose: if an event took
 * effect twice, it would be there twice.
 */
import { migrate, type Database } from 'waybill'
import { gameTables } from '../game/tables.ts'

export async function prepareVideo(db: Database): Promise<void> {
  await migrate(db, { schema: 'waybill', service: 'video' })
  await db.query(`create table video (id text primary key, title text not null, edit text not null); ${gameTables}`)
}

export async function prepareCatalog(db: Database): Promise<void> {
  await migrate(db, { schema: 'waybill', service: 'catalog' })
  await db.query(`
    create table catalog_video (
      video_id text primary key, title text, edit text, version bigint not null, deleted_at timestamptz);
    create table catalog_player (
      player_id text primary key, resources jsonb, version bigint not null, deleted_at timestamptz);
    create table effect (
      id bigint generated always as identity primary key,
      event_id uuid not null, aggregate_type text not null, aggregate_id text not null, version bigint not null,
      at timestamptz not null default clock_timestamp());
    create index effect_event_id_idx on effect (event_id)`)
}
