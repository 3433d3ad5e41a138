-- How far a consumer is with each partition, for consumers that keep this here instead of at the broker. Moved in the
-- transaction of the effects, under the row's lock: what is below `next_offset` is done, whatever the broker delivers again.
create table :schema.consumer_offset (
  consumer    text        not null,
  generation  int         not null,
  topic       text        not null,
  partition   text        not null,
  next_offset bigint      not null check (next_offset >= 0),
  updated_at  timestamptz not null default clock_timestamp(),
  primary key (consumer, generation, topic, partition)
) with (fillfactor = 50);
