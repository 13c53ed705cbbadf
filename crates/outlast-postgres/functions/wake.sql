-- Waking workers that sleep, for users of the setting wake = notify.

-- A reader that sleeps holds this lock exclusively. It is inverted: who holds it is *not* looking. With a lock held while
-- awake every emit notified as long as no engine ran, and under load its taker lost against the emits.
create or replace function outlast._wake_lock() returns bigint
language sql immutable parallel safe
as $$ select outlast._lock_room(7311) $$;

-- Gives emit the text that the settings choose. A look at the setting's row takes 2.6 µs, 9 % of an emit; a parameter of
-- the database takes 0.1 µs, but old sessions, and those of a pooler, would not hear of a change; this takes nothing.
-- Run by `migrate` and `apply`, which operators call; never by a worker.
create or replace function outlast._choose() returns void
language plpgsql volatile
as $choose$
begin
  if outlast._setting('wake') = 'notify' then
    -- Either nobody sleeps: then the shared lock keeps everybody from falling asleep before this transaction has ended,
    -- and the look before that sleep sees it. Or somebody does, and is woken by its commit.
    create or replace function outlast._woken() returns boolean
    language plpgsql volatile
    as $$
    begin
      if not pg_try_advisory_xact_lock_shared(outlast._wake_lock()) then
        perform pg_notify('outlast_wake', '');
      end if;
      return true;
    end $$;
  else
    create or replace function outlast._woken() returns boolean
    language sql immutable parallel safe
    as $$ select true $$;
  end if;
end $choose$;
select outlast._choose();

-- Can an event above this id be seen by now? Asked by a look that finds ids drawn and transactions open. In the leaves of
-- now, with an hour on both sides: whoever draws an id now does not write it elsewhere.
create or replace function outlast._visible_above(last bigint) returns boolean
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  s smallint;
  at timestamptz := outlast.clock();
begin
  foreach s in array outlast._log_slots(at, at) loop
    if outlast._leaf_above(s, _visible_above.last) then return true; end if;
  end loop;
  return false;
end $$;

-- A look that waits for news in the server: until an id is drawn, `most_ms` at most, and then some milliseconds for the commit
-- of who has drawn it, which shows by an event, a job or a mark. To wake up here each millisecond costs a twentieth of a look that comes from outside.
create or replace function outlast._await(last bigint, most_ms int, out snap text, out last_id bigint, out own text, out visible boolean)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  slept text;
  commits int := 0;
  slots smallint[];
  recent uuid;                                   -- below the ids of all jobs that were enqueued just now
begin
  for i in 1..most_ms loop
    exit when coalesce(pg_sequence_last_value('outlast._event_id'), 0) <> _await.last;
    slept := pg_sleep(0.001)::text;
  end loop;
  if coalesce(pg_sequence_last_value('outlast._event_id'), 0) > _await.last then
    slots := outlast._log_slots(outlast.clock(), outlast.clock());
    recent := rpad(lpad(to_hex((date_part('epoch', outlast.clock()) * 1000)::bigint - 20), 12, '0'), 32, '0')::uuid;
    loop
      visible := outlast._leaf_above(slots[1], _await.last) or cardinality(slots) > 1 and outlast._leaf_above(slots[2], _await.last)
        or exists (select from outlast._job_ready r where r.id >= recent)
        or exists (select from outlast._entity_mark m where m.id > _await.last);
      exit when visible or commits >= 3;
      commits := commits + 1;
      slept := pg_sleep(0.001)::text;
    end loop;
  end if;
  -- As in any look: the snapshot, the last id, and, if that has moved, an own transaction id.
  snap := pg_current_snapshot()::text;
  last_id := coalesce(pg_sequence_last_value('outlast._event_id'), 0);
  if last_id <> _await.last then
    own := pg_current_xact_id()::text;
    -- Whoever has ended before the snapshot was taken is waited for by nobody.
    if visible is not true then visible := outlast._visible_above(_await.last); end if;
  end if;
end $$;

-- The elected poller goes: another may be elected at once.
create or replace function outlast._resign(token uuid) returns void
language plpgsql volatile
as $$
begin
  delete from outlast._lease l where l.token = _resign.token and l.room = 'poller';
  perform pg_notify('outlast_wake', 'resigned');
end $$;

-- What waits for the consumers of one process, asked for all of them at once, now and then: a bell that never rings loses
-- nothing. Only reads, but for the floors of the leases, which it moves for those who have nothing to take over. `lapsed`: somebody's lease; `parked_ms`: until something parked is due, 0 also where a worker that
-- is new enough may have come; `news`: a claim may find something, or has something to say.
create or replace function outlast._due(consumers int[])
returns table (consumer int, lapsed boolean, parked_ms bigint, news boolean)
language plpgsql volatile
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
begin
  for c in select x.* from unnest(consumers) u (id) join outlast._consumer x on x.id = u.id loop
    consumer := c.id;
    lapsed := false;
    parked_ms := null;
    news := false;
    begin
      perform outlast._check_running(c.id);
    exception when sqlstate 'OL020' then
      news := true;                              -- held: its claim says so, the others go on
    end;
    if c.state = 'active' and not news then
      lapsed :=
        exists (select from outlast._in_work(c.id) x where outlast._lapsed(x.expires_at))
        or exists (select from outlast._lease x where x.room = 'parked' and x.consumer = c.id and x.lane is null and outlast._lapsed(x.expires_at))
        or exists (select from outlast._lease x where x.room = 'delivered' and x.consumer = c.id and x.lane is null and outlast._lapsed(x.expires_at));
      if exists (select from outlast._parked p where p.consumer = c.id and p.state = 'waiting-version') then
        parked_ms := 0;
      else
        select (extract(epoch from greatest(p.next_at - outlast.clock(), interval '0')) * 1000)::bigint into parked_ms
        from outlast._parked p
        where p.consumer = c.id and p.state = 'retry'
          and not exists (select from outlast._lease x where x.token = p.token and not outlast._lapsed(x.expires_at))
        order by p.next_at limit 1;
      end if;
      news := c.lanes_wanted is not null or exists (
        select from outlast._places(c.id, array(select generate_series(0, c.lanes - 1))) p
        where p.hi < (p.b).hi or outlast._beyond(p.b));
      perform outlast._raise_floors(c.id);
    end if;
    return next;
  end loop;
end $$;
