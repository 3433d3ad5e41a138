-- Lets a consumer of the Postgres transport have messages again without losing what it has not settled.

-- Gives a subscription again what is retained since a moment, and keeps what is older and not settled. A new tenure of every lane
-- makes whatever is in hand lost to its receiver; a lane is read in order of seq, so each key comes in order. Deliveries since the
-- moment are made anew, not kept: an ack that began before would still delete one that it saw.
--
-- transport_seek, after which what is older counts as settled, is for subscriptions that have nothing to lose. Processes of the
-- version before replay with it.
create function :schema.transport_rewind(topic text, subscription int, since timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform :schema.transport_lock_topic(topic, true);
  perform from :schema.transport_subscription s where s.id = subscription for update;
  update :schema.transport_lane l set tenure = l.tenure + 1, locked_by = null, lock_expires_at = null where l.subscription_id = subscription;
  delete from :schema.transport_delivery d
   using :schema.transport_subscription s, :schema.transport_message m
   where s.id = subscription and d.subscription_id = s.id and m.topic_id = s.topic_id and m.seq = d.seq and m.published_at >= since;
  perform :schema.transport_fill(subscription, since);
end $$;
