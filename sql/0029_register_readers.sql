-- Registers what each running instance of a consumer reads. While two versions of a consumer run side by side, the older one gets
-- events that only the newer one knows: it puts them aside in inbox_message, where the newer one finds them.

-- One row for each running instance. It ends with its heartbeat: what has expired counts for nothing, and is removed an hour later by
-- any instance.
--   reads    the streams by the types of their aggregates, each with the names of its event types
--   digest   of `reads`: instances with the same one are of one version
create table :schema.consumer_reader (
  consumer   text        not null,
  instance   uuid        not null,
  generation int         not null,
  host       text        not null,
  reads      jsonb       not null,
  digest     text        not null,
  started_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  primary key (consumer, instance)
);

-- What the instance that put a message aside did not know: its `stream`, or its event `type`. Null of every other message.
alter table :schema.inbox_message add column unknown text;
