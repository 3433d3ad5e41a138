-- How far back a consumer's inbox remembers. What it processed before `forgotten_before` may be gone from the inbox, so a
-- message from that time would pass for a new one. Written with the deletion, read before every redrive and replay.
alter table :schema.consumer add column forgotten_before timestamptz;
