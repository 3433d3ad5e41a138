-- Lets nobody wait for long who publishes to a topic of the Postgres transport that somebody has alone.

-- Who subscribes, seeks or rewinds has a topic alone while it copies what is retained. A publisher that waits for all of that keeps its
-- connection, also when its caller has given up; soon no connection is left for other topics. So it waits a second for a lock and
-- then ends with SQLSTATE 55P03, and nothing is stored. The limit is the function's own: what follows in the same transaction waits
-- as before. Whoever replaces the function must set it again.
alter function :schema.transport_publish(text, text[], jsonb[], bytea[], int[]) set lock_timeout = '1s';
