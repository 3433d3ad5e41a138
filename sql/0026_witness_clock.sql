-- Keeps a step of the database's clock from making everything old at once: what the clock gains while nobody looks is written down,
-- and counts for no row that was there before.

-- How far clean-ups have followed the clock, in one row.
--   seen_at  what it said when one of them looked last
--   leaps    what it went over since without being followed, newest first: [{"from": ms, "to": ms}]
create table :schema.retention_clock (
  one     boolean     primary key default true check (one),
  seen_at timestamptz not null,
  leaps   jsonb       not null default '[]'
) with (fillfactor = 50);
