-- Whoever applies an event settles the dead letter that it may have, so that letter and inbox never contradict each other.

-- Locks the letters of these events that are not settled, and returns the events that have one. It looks with a snapshot of its own: a
-- statement that waited for a burial to end does not see the letter that came of it, and this does. Letters are locked before inbox
-- rows, in the order of their numbers. Where a consumer has no open letter, as most of the time, it looks at two index entries.
create function :schema.lock_letters(consumer text, generation int, events uuid[]) returns setof uuid
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if exists (select from :schema.dead_letter d where d.consumer = lock_letters.consumer and d.state = 'dead')
     or exists (select from :schema.dead_letter d
                 where d.consumer = lock_letters.consumer and d.generation = lock_letters.generation and d.state = 'redriving') then
    return query
    select d.event_id from :schema.dead_letter d
     where d.consumer = lock_letters.consumer and d.generation = lock_letters.generation and d.event_id = any (events)
       and d.state in ('dead', 'redriving')
     order by d.id for update;
  end if;
end $$;
