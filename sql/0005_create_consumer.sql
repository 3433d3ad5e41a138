-- The consumer's side: what was applied, how far each aggregate is, what waits, and what was given up.
--
-- A consumer is a named reader of streams. Everything it remembers is kept per generation: one life of its projections. A
-- rebuild starts the next generation, so that the inbox of the old one does not swallow the replay.

-- The consumers of this service. `generation` is the one that readers see; `next_generation` is being built beside it. What a consumer
-- processed before `forgotten_before` may be gone from its inbox, so a message from that time would pass for a new one; it is written with
-- the deletion, and read before every redrive and replay.
create table :schema.consumer (
  name             text        primary key,
  generation       int         not null default 1 check (generation > 0),
  next_generation  int         check (next_generation > generation),
  state            text        not null default 'live',
  paused           boolean     not null default false,
  paused_by        text,
  paused_at        timestamptz,
  ready_at         timestamptz,
  created_at       timestamptz not null default clock_timestamp(),
  forgotten_before timestamptz
);

-- One row for each running instance of a consumer, with what it reads. While two versions of a consumer run side by side, the older one
-- gets events that only the newer one knows: it puts them aside in inbox_message, where the newer one finds them. A row ends with its
-- heartbeat: what has expired counts for nothing, and is removed an hour later by any instance.
--   reads    the streams by the types of their aggregates, each with the names of its event types
--   digest   of `reads`: instances with the same one are of one version
create table :schema.consumer_reader (
  consumer   text        not null,
  instance   uuid        not null,
  generation int         not null,
  host       text        not null,
  reads      jsonb       not null,
  digest     text        not null,
  started_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  primary key (consumer, instance)
);

-- One row per event whose effect committed, written in the transaction of that effect. Its key is the producer's event id: the
-- broker's own ids change when a message is published again. `content_hash` tells another event under the same id from a repeat; it is
-- null of an event without content. `conflicted_at` is when the first such event came.
create table :schema.inbox (
  consumer      text        not null,
  generation    int         not null,
  event_id      uuid        not null,
  source        text        not null,
  processed_at  timestamptz not null default clock_timestamp(),
  content_hash  bytea,
  conflicted_at timestamptz,
  primary key (consumer, generation, event_id)
);
create index inbox_processed_at_idx on :schema.inbox using brin (processed_at) with (pages_per_range = 32, autosummarize = on);

-- How far a consumer is with each aggregate. Advances with every event, also with those that it ignores: tokens wait for it,
-- and deltas apply only at version + 1. Its row lock puts all who work on the aggregate in line.
--   waiting      messages of this aggregate that are stored in inbox_message, behind a gap or behind a dead letter
--   held_by      the dead letter that later versions wait for
--   taken_from, taken_to
--                every version from the one to the other was taken, each under an id that the inbox got. An event of one of these
--                versions that the inbox does not know is a fork: an owner that lost commits in a fail-over gave the version again.
--                Null where nothing is known. What moves `version` and knows nothing of ids leaves both as they are: they stay
--                true, and what is taken next begins anew where `taken_to` is not `version`.
--   overlapped   where `taken_to` was when the last batch came, if that had versions up to there; null otherwise
--   jumped_from  where the position stood before the last batch that moved it, if that was a jump
create table :schema.consumer_position (
  consumer       text        not null,
  generation     int         not null,
  aggregate_type text        not null,
  aggregate_id   text        not null,
  version        bigint      not null check (version >= 0),
  waiting        int         not null default 0 check (waiting >= 0),
  held_by        uuid,
  updated_at     timestamptz not null default clock_timestamp(),
  taken_from     bigint,
  taken_to       bigint,
  overlapped     bigint,
  jumped_from    bigint,
  primary key (consumer, generation, aggregate_type, aggregate_id)
) with (fillfactor = 70);
create index consumer_position_waiting_idx on :schema.consumer_position (consumer, generation) where waiting > 0 or held_by is not null;

-- How far a consumer is with each partition, for consumers that keep this here instead of at the broker. Moved in the
-- transaction of the effects, under the row's lock: what is below `next_offset` is done, whatever the broker delivers again.
-- A topic that was deleted and made again has the old name and another log, so `topic_id` is what the broker calls the topic. Null where
-- it gives no id: such a row is believed, and gets the id when it is next read or written.
create table :schema.consumer_offset (
  consumer    text        not null,
  generation  int         not null,
  topic       text        not null,
  partition   text        not null,
  next_offset bigint      not null check (next_offset >= 0),
  updated_at  timestamptz not null default clock_timestamp(),
  topic_id    text,
  primary key (consumer, generation, topic, partition)
) with (fillfactor = 50);

-- Failures of events that have not been applied, counted in transactions of their own: the one that failed was rolled back.
-- `unfinished` counts starts without an end: what ends the process, and not only its own transaction, shows here.
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

-- Messages that are stored before they are applied: all of them in stored mode, in direct mode only those that wait.
--   0 due      in line, in order of seq
--   1 retry    head of its key: failed, due again at next_attempt_at; blocks what is behind it
--   2 held     behind a head, out of the due range
--   3 dead     head that gave up: its dead letter waits for an operator, and it blocks what is behind it
--   4 waiting  came before its predecessor, or behind a dead letter; applied in the order of versions when its turn comes
-- `unknown` is what the instance that put the message aside did not know: its `stream`, or its event `type`. Null of every other.
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
  unknown         text,
  primary key (consumer, generation, lane, state, seq),
  unique (consumer, generation, event_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create unique index inbox_message_head_idx on :schema.inbox_message (consumer, generation, lane, key) include (seq) where state in (1, 3);
create index inbox_message_retry_idx on :schema.inbox_message (consumer, generation, lane, next_attempt_at) where state = 1;
create index inbox_message_held_idx on :schema.inbox_message (consumer, generation, lane, key, seq) where state = 2;
create index inbox_message_waiting_idx on :schema.inbox_message (consumer, generation, aggregate_type, aggregate_id, version) where state = 4;

-- One row for each lane of a consumer's stored messages: which instance works it, and until when.
create table :schema.inbox_lane (
  consumer        text     not null,
  lane            smallint not null,
  lock_token      uuid,
  locked_by       text,
  locked_at       timestamptz,
  lock_expires_at timestamptz,
  primary key (consumer, lane)
) with (fillfactor = 50);

-- Messages that stored mode has applied, as they were received, for consumers that keep them (`archive: true`). Only people read
-- them; retention removes them.
create table :schema.inbox_archive (
  consumer       text        not null,
  generation     int         not null,
  event_id       uuid        not null,
  aggregate_type text        not null,
  aggregate_id   text        not null,
  version        bigint      not null,
  topic          text        not null,
  ordering_key   text,
  message_id     text        not null,
  attributes     jsonb       not null,
  body           bytea       not null,
  published_at   timestamptz not null,
  received_at    timestamptz not null,
  archived_at    timestamptz not null default clock_timestamp(),
  primary key (consumer, generation, event_id)
);

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

-- Messages that are not believed: a sample of those that a consumer refused because their signature is missing or wrong, at most 100
-- of each reason, so that a flood of them fills nothing. They have taken no effect, and only people read them. `body` is the
-- beginning of the body, `body_bytes` the size of all of it.
create table :schema.refused_message (
  consumer     text        not null,
  reason       text        not null check (reason in ('unsigned', 'unknown_key', 'forged')),
  slot         smallint    not null check (slot between 1 and 100),
  topic        text        not null,
  message_id   text        not null,
  ordering_key text,
  attributes   jsonb       not null,
  body         bytea       not null,
  body_bytes   bigint      not null,
  published_at timestamptz not null,
  refused_at   timestamptz not null default clock_timestamp(),
  primary key (consumer, reason, slot)
);

-- Locks the letters of these events that are not settled, and returns the events that have one: a transaction that applies an event
-- settles the dead letter that it may have, so that letter and inbox never contradict each other. It looks with a snapshot of its own: a
-- statement that waited for a burial to end does not see the letter that came of it, and this does. Letters are locked before inbox
-- rows, in the order of their numbers. Where a consumer has no open letter, as most of the time, it looks at two index entries.
create function :schema.lock_letters(consumer text, generation int, events uuid[]) returns setof uuid
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if exists (select from :schema.dead_letter d where d.consumer = lock_letters.consumer and d.state = 'dead')
     or exists (select from :schema.dead_letter d
                 where d.consumer = lock_letters.consumer and d.generation = lock_letters.generation and d.state = 'redriving') then
    return query
    select d.event_id from :schema.dead_letter d
     where d.consumer = lock_letters.consumer and d.generation = lock_letters.generation and d.event_id = any (events)
       and d.state in ('dead', 'redriving')
     order by d.id for update;
  end if;
end $$;
