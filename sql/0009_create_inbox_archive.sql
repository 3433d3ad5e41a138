-- Messages that stored mode has applied, as they were received, for consumers that keep them (`archive: true`). Nothing reads
-- them but people; retention removes them.
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
create index inbox_archive_archived_at_idx on :schema.inbox_archive using brin (archived_at) with (pages_per_range = 32, autosummarize = on);
