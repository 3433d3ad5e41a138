-- The consumer's side: what was applied, how far each aggregate is, what waits, and what was given up.
--
-- A consumer is a named reader of streams. Everything it remembers is kept per generation: one life of its projections. A
-- rebuild starts the next generation, so that the inbox of the old one does not swallow the replay.

-- The consumers of this service. `generation` is the one that readers see; `next_generation` is being built beside it.
create table :schema.consumer (
  name            text        primary key,
  generation      int         not null default 1 check (generation > 0),
  next_generation int         check (next_generation > generation),
  state           text        not null default 'live',
  paused          boolean     not null default false,
  paused_by       text,
  paused_at       timestamptz,
  ready_at        timestamptz,
  created_at      timestamptz not null default clock_timestamp()
);

-- One row per event whose effect committed, written in the transaction of that effect. Its key is the producer's event id: the
-- broker's own ids change when a message is published again.
create table :schema.inbox (
  consumer     text        not null,
  generation   int         not null,
  event_id     uuid        not null,
  source       text        not null,
  processed_at timestamptz not null default clock_timestamp(),
  primary key (consumer, generation, event_id)
);
create index inbox_processed_at_idx on :schema.inbox using brin (processed_at) with (pages_per_range = 32, autosummarize = on);

-- How far a consumer is with each aggregate. Advances with every event, also with those that it ignores: tokens wait for it,
-- and deltas apply only at version + 1. Its row lock puts whoever works on the aggregate in line.
--   waiting   messages of this aggregate that are stored in inbox_message, behind a gap or behind a dead letter
--   held_by   the dead letter that later versions wait for
create table :schema.consumer_position (
  consumer       text        not null,
  generation     int         not null,
  aggregate_type text        not null,
  aggregate_id   text        not null,
  version        bigint      not null check (version >= 0),
  waiting        int         not null default 0 check (waiting >= 0),
  held_by        uuid,
  updated_at     timestamptz not null default clock_timestamp(),
  primary key (consumer, generation, aggregate_type, aggregate_id)
) with (fillfactor = 70);
create index consumer_position_waiting_idx on :schema.consumer_position (consumer, generation) where waiting > 0 or held_by is not null;

-- Failures of events that have not been applied, counted in transactions of their own: the one that failed was rolled back.
-- `unfinished` counts starts that nobody finished: what ends the process, and not only its own transaction, shows here.
create table :schema.delivery_attempt (
  consumer    text        not null,
  generation  int         not null,
  event_id    uuid        not null,
  attempts    int         not null default 0,
  unfinished  int         not null default 0,
  first_error text,
  last_error  text,
  first_at    timestamptz not null default clock_timestamp(),
  started_at  timestamptz,
  finished_at timestamptz,
  primary key (consumer, generation, event_id)
) with (fillfactor = 70);
create index delivery_attempt_first_at_idx on :schema.delivery_attempt using brin (first_at) with (pages_per_range = 32, autosummarize = on);

-- Messages that are stored before they are applied: all of them in stored mode, in direct mode only those that wait.
--   0 due      in line, in order of seq
--   1 retry    head of its key: failed, due again at next_attempt_at; blocks what is behind it
--   2 held     behind a head, out of the due range
--   3 dead     head that gave up: its dead letter waits for an operator, and it blocks what is behind it
--   4 waiting  came before its predecessor, or behind a dead letter; applied in the order of versions when its turn comes
create table :schema.inbox_message (
  seq             bigint generated always as identity (cache 1),
  key             bigint      not null,
  lane            smallint    not null,
  state           smallint    not null default 0 check (state between 0 and 4),
  consumer        text        not null,
  generation      int         not null,
  event_id        uuid        not null,
  aggregate_type  text        not null,
  aggregate_id    text        not null,
  version         bigint      not null,
  attempts        int         not null default 0,
  topic           text        not null,
  ordering_key    text,
  message_id      text        not null,
  attributes      jsonb       not null,
  body            bytea       not null,
  published_at    timestamptz not null,
  received_at     timestamptz not null default clock_timestamp(),
  next_attempt_at timestamptz,
  started_at      timestamptz,
  error           text,
  primary key (consumer, generation, lane, state, seq),
  unique (consumer, generation, event_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create unique index inbox_message_head_idx on :schema.inbox_message (consumer, generation, lane, key) include (seq) where state in (1, 3);
create index inbox_message_retry_idx on :schema.inbox_message (consumer, generation, lane, next_attempt_at) where state = 1;
create index inbox_message_held_idx on :schema.inbox_message (consumer, generation, lane, key, seq) where state = 2;
create index inbox_message_waiting_idx on :schema.inbox_message (consumer, generation, aggregate_type, aggregate_id, version) where state = 4;

-- Who works which lane of a consumer's stored messages, and until when.
create table :schema.inbox_lane (
  consumer        text     not null,
  lane            smallint not null,
  lock_token      uuid,
  locked_by       text,
  locked_at       timestamptz,
  lock_expires_at timestamptz,
  primary key (consumer, lane)
) with (fillfactor = 50);

-- Messages that a consumer gave up on, with everything that is needed to apply them later.
--   dead ──▶ redriving ──▶ redriven        redriving ──▶ dead (it failed again)
--   dead ──▶ discarded                     a handler that says discard(reason) makes it discarded at once
-- `history` lists what happened to it since, oldest first.
create table :schema.dead_letter (
  id              bigint generated always as identity primary key,
  consumer        text        not null,
  generation      int         not null,
  event_id        uuid        not null,
  event_type      text        not null,
  topic           text        not null,
  aggregate_type  text,
  aggregate_id    text,
  version         bigint,
  reason          text        not null,
  error           text        not null,
  attempts        int         not null,
  state           text        not null default 'dead' check (state in ('dead', 'redriving', 'redriven', 'discarded')),
  redrives        int         not null default 0,
  ordering_key    text,
  message_id      text        not null,
  attributes      jsonb       not null,
  body            bytea       not null,
  published_at    timestamptz not null,
  first_failed_at timestamptz not null,
  dead_at         timestamptz not null default clock_timestamp(),
  next_attempt_at timestamptz,
  history         jsonb       not null default '[]',
  unique (consumer, generation, event_id)
);
create index dead_letter_group_idx on :schema.dead_letter (consumer, reason, event_type, id) where state = 'dead';
create index dead_letter_redriving_idx on :schema.dead_letter (consumer, generation, id) where state = 'redriving';
create index dead_letter_aggregate_idx on :schema.dead_letter (consumer, generation, aggregate_type, aggregate_id, version);
create index dead_letter_dead_at_idx on :schema.dead_letter (dead_at);
