-- Says of which topic an offset is. A topic that was deleted and made again, or that of another cluster, has the name of the one
-- before and another log: an offset of the one would skip what the other has before it.

-- As the broker calls the topic. Null where it gives no id, and in rows from before: those are believed, and get it when they are
-- next read or written.
alter table :schema.consumer_offset add column topic_id text;
