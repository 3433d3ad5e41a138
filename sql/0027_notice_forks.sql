-- Notices two events of one aggregate and version. An owner that lost commits in a fail-over gives their versions again, and
-- compared with a position alone, the second of them looks like something that was seen before.

-- Every version from `taken_from` to `taken_to` was taken, each under an id that the inbox got. An event of one of these
-- versions that the inbox does not know is a fork. Null where nothing is known. What moves `version` and knows nothing of ids
-- leaves both as they are: they stay true, and what is taken next begins anew where `taken_to` is not `version`.
-- `overlapped` is where `taken_to` was when the last batch came, if that had versions up to there; null otherwise.
alter table :schema.consumer_position
  add column taken_from bigint,
  add column taken_to   bigint,
  add column overlapped bigint;
