-- Messages that are not believed: a sample of those that a consumer refused because their signature is missing or wrong, at most 100
-- of each reason, so that a flood of them fills nothing. They have taken no effect, and nothing reads them but people. `body` is the
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

-- Where a position stood before the last batch that moved it, if that was a jump; what the statement of the batch returns of it.
alter table :schema.consumer_position add column jumped_from bigint;
