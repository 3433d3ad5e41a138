-- Payloads that are too large for an event: the event carries a reference, the bytes are here (a claim check).

-- One row per payload. It is written before the transaction whose event refers to it commits, in a transaction of its own, under a key
-- made from its hash. So a crash in between leaves a blob without a reference, never a reference without its blob. `used_at` is the last
-- time that the same bytes were written; retention goes by it.
create table :schema.blob (
  key     text        primary key,
  bytes   bigint      not null check (bytes >= 0),
  used_at timestamptz not null default clock_timestamp()
);
create index blob_used_at_idx on :schema.blob (used_at);

-- The bytes in parts, so that no statement has to carry all of them.
create table :schema.blob_part (
  key   text  not null references :schema.blob on delete cascade,
  part  int   not null,
  bytes bytea not null,
  primary key (key, part)
);
-- Large payloads are often compressed already, and Postgres would try for longer than it takes to write them.
alter table :schema.blob_part alter column bytes set storage external;
