-- Drops two indexes that nobody asks any more: retention walks over these tables instead. A process of the version before finds
-- what is old there without them, only slower.
drop index :schema.delivery_attempt_first_at_idx;
drop index :schema.inbox_archive_archived_at_idx;
