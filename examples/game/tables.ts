/**
 * The game's own tables: players, what they have, what they can, and an audit row for everything that was given or taken.
 *
 * The books agree when inventory and resources are the sums of what the audit says; `books.ts` checks it.
 */
export const gameTables = `
  create table if not exists player (
    id    text primary key,
    name  text not null
  );
  create table if not exists inventory (
    player_id text not null references player,
    item      text not null,
    amount    int  not null check (amount >= 0),
    primary key (player_id, item)
  );
  create table if not exists resource (
    player_id text not null references player,
    resource  text not null,
    amount    int  not null check (amount >= 0),
    primary key (player_id, resource)
  );
  create table if not exists hero_stage (
    player_id text not null references player,
    hero      text not null,
    stage     int  not null,
    primary key (player_id, hero)
  );
  create table if not exists hero_skill (
    player_id text not null references player,
    hero      text not null,
    skill     text not null,
    primary key (player_id, hero, skill)
  );
  create table if not exists audit (
    id         bigint generated always as identity primary key,
    player_id  text not null references player,
    request_id text not null,
    reason     text not null,
    place      int  not null,
    kind       text not null check (kind in ('item', 'resource')),
    name       text not null,
    amount     int  not null,
    metadata   jsonb not null,
    at         timestamptz not null
  );
  create index if not exists audit_player_idx on audit (player_id, request_id);`
