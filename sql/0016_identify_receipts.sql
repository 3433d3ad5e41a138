-- Lets receipts be removed under a publication for all tables, as connectors, warehouse loaders and blue/green deployments make
-- one: from a table without a replica identity nothing can be deleted then (SQLSTATE 55000), and retention would stop. Every other
-- table has a primary key. A receipt has none, because an event that is replayed gets another; its whole row says which one it is. That
-- writes no more into the log unless wal_level is logical.
alter table :schema.outbox_receipt replica identity full;
