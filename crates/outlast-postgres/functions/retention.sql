-- The rings: when a leaf may be emptied, and how. By TRUNCATE of that one leaf, an hour after it became removable: an older
-- snapshot would find it empty. A leaf that cannot be emptied in time just keeps growing when the ring comes round.

-- An event of this leaf that whoever stands at this tick has not seen; null: he has seen all. Two kinds of probe along
-- (xid, id). Not by id: a transaction that committed late has ids below `hi` that are still to come.
create or replace function outlast._unseen(slot smallint, tick outlast._tick) returns bigint
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  above xid8 := pg_snapshot_xmax((tick).snap);
  x xid8;
  e record;
begin
  -- What was drawn after the tick, also by transactions whose ids begin anew.
  select v.id into e from outlast._last_row(_unseen.slot) v;
  if e.id is null or e.id <= (tick).base then return null; end if;
  if e.id > (tick).hi then return e.id; end if;
  for e in select v.xid, v.id from outlast._event v where v.slot = _unseen.slot and v.xid >= above order by v.xid, v.id loop
    if not outlast._saw(tick, e.xid, e.id) then return e.id; end if;
  end loop;
  for x in select pg_snapshot_xip((tick).snap) loop
    for e in select v.xid, v.id from outlast._event v where v.slot = _unseen.slot and v.xid = x order by v.id loop
      if not outlast._saw(tick, e.xid, e.id) then return e.id; end if;
    end loop;
  end loop;
  return null;
end $$;

-- The last event of a leaf of the log, by its id.
create or replace function outlast._last_row(slot smallint) returns setof outlast._event
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  return query select * from outlast._event e where e.slot = _last_row.slot order by e.id desc limit 1;
end $$;

-- Who still needs a leaf of the log. Judged by its rows' real times, not only by its number: it may be of an earlier round.
create or replace function outlast._log_needs(slot smallint) returns table (kind text, about text, detail text)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  newest record;
  over_at timestamptz;
  p record;
  id bigint;
begin
  select e.id, e.emitted_at into newest from outlast._last_row(_log_needs.slot) e;
  over_at := to_timestamp((floor(outlast._epoch(newest.emitted_at) / outlast._log_slot_s()) + 1) * outlast._log_slot_s());
  if _log_needs.slot = any (outlast._log_slots(outlast.clock(), outlast.clock())) or over_at + interval '1 hour' > outlast.clock() then
    return query select 'window', 'emit', 'events are written to it' || coalesce(format(' until %s', over_at), '');
    return;
  end if;
  -- Snapshots of one database are nested: what the oldest of a consumer has seen, all of its have.
  for p in
    select distinct on (c.id, x.leased) c.name, x.lane, x.seq, x.leased, x.tick
    from outlast._stands() x join outlast._consumer c on c.id = x.consumer
    where c.state <> 'retired' or x.leased
    order by c.id, x.leased, (x.tick).base, pg_snapshot_xmax((x.tick).snap), (select count(*) from pg_snapshot_xip((x.tick).snap)) desc
  loop
    id := outlast._unseen(_log_needs.slot, p.tick);
    if id is not null then
      kind := case when p.leased then 'batch' else 'consumer' end;
      about := p.name;
      detail := case when p.leased then format('lane %s, batch %s in flight: event %s is not surely done', p.lane, p.seq, id)
                     else format('lane %s has not passed event %s', p.lane, id) end;
      return next;
    end if;
  end loop;
  -- Completions are folded by the events' log ids.
  return query
    select 'fold', c.name, format('folded up to %s of %s', coalesce(f.next, 0), newest.id)
    from outlast._consumer c
    left join lateral (select f.next from outlast._fold_place f where f.consumer = c.id order by f.next desc limit 1) f on true
    where newest.id is not null and coalesce(f.next, 0) <= newest.id;
end $$;

-- The window of the inbox that a slot held last: it is over, and its end is after `since`.
create or replace function outlast._inbox_window(slot smallint, out since timestamptz, out until timestamptz)
language plpgsql stable
as $$
declare
  now_at bigint := floor(outlast._epoch(outlast.clock()) / outlast._inbox_slot_s());
  n bigint := now_at - 1 - mod(mod(now_at - 1 - slot, 16) + 16, 16);
begin
  since := to_timestamp(n * outlast._inbox_slot_s());
  until := to_timestamp((n + 1) * outlast._inbox_slot_s());
end $$;

-- The first completion of this leaf whose id is at or above a bound, of any consumer; one probe each.
create or replace function outlast._inbox_beyond(slot smallint, from_id uuid) returns uuid
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  c int;
  found_id uuid;
begin
  for c in select x.id from outlast._consumer x loop
    select p.event_id into found_id from outlast._processed_event p
    where p.slot = _inbox_beyond.slot and p.consumer = c and p.event_id >= from_id order by p.event_id limit 1;
    exit when found_id is not null;
  end loop;
  return found_id;
end $$;

-- Why the rows of a leaf of the inbox are not yet proved by bits.
create or replace function outlast._sweep_needs(slot smallint) returns table (kind text, about text, detail text)
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  w record;
  place record;
  s smallint;
  id uuid;
  n bigint;
begin
  select * into w from outlast._inbox_window(_sweep_needs.slot);
  id := outlast._inbox_beyond(_sweep_needs.slot, outlast._v7_first(w.until));
  if id is not null then
    return query select 'window', 'round', format('the ring came round: completion %s is of a window that is not over', id);
    return;
  end if;
  select c.name, coalesce(f.next, 0) as next into place
  from outlast._consumer c
  left join lateral (select f.next from outlast._fold_place f where f.consumer = c.id order by f.next desc limit 1) f on true
  order by coalesce(f.next, 0) limit 1;
  if place.name is null then return; end if;
  -- A border of an inbox window is one of log windows too: from there on no leaf of the log mixes both sides.
  if exists (select from outlast._first_row(place.next) e where e.emitted_at < w.until) then
    return query select 'fold', place.name, format('folded up to %s, not yet beyond %s', place.next, w.until);
    return;
  end if;
  for s in select x::smallint from generate_series(0, 15) x loop
    continue when not exists (select from outlast._last_row(s) e where e.id >= place.next);
    select e.event_id into id from outlast._event e
    where e.slot = s and e.event_id >= outlast._v7_first(w.since) and e.event_id < outlast._v7_first(w.until)
      and e.id >= place.next order by e.event_id limit 1;
    if id is not null then
      return query select 'fold', place.name, format('event %s has an id of this window and is not folded yet', id);
      return;
    end if;
  end loop;
  select count(*) into n from (select from outlast._unfolded u where u.slot = _sweep_needs.slot limit 5001) x;
  if n > 5000 then
    return query select 'rows', 'skipped or parked', 'more than 5000 completions cannot be folded and need their rows';
  end if;
end $$;

-- Which events may still ask for a completion of this leaf.
create or replace function outlast._inbox_needs(slot smallint) returns table (kind text, about text, detail text)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  w record;
  id uuid;
  c record;
  oldest timestamptz;                            -- event of the log
begin
  select * into w from outlast._inbox_window(_inbox_needs.slot);
  id := outlast._inbox_beyond(_inbox_needs.slot, outlast._v7_first(w.until));
  if id is not null then
    return query select 'window', 'round', format('the ring came round: completion %s is of a window that is not over', id);
    return;
  end if;
  for c in select x.id, x.name from outlast._consumer x loop
    select p.event_id into id from outlast._parked p
    where p.consumer = c.id and p.event_id < outlast._v7_first(w.until) and outlast._inbox_slot(p.event_id) = _inbox_needs.slot
    order by p.event_id limit 1;
    if id is not null then
      return query select 'parked', c.name, format('event %s is parked', id);
    end if;
  end loop;
  -- Own ids may be seven days older than their event; an hour covers a clock that was set.
  select min(e.emitted_at) into oldest from generate_series(0, 15) s cross join lateral outlast._first_of_leaf(s::smallint) e;
  return query
    select distinct on (c.id) case when x.leased then 'batch' else 'consumer' end, c.name,
           format('lane %s has not surely completed all events since %s, and their own ids may be 7 days older', x.lane, b.since)
    from outlast._stands() x
    join outlast._consumer c on c.id = x.consumer
    cross join lateral (
      select greatest(oldest, least((x.tick).at, (x.tick).young_at, (select min(o) from unnest((x.tick).open_at) o))) as since) b
    where (c.state <> 'retired' or x.leased) and oldest is not null and b.since - interval '7 days 1 hour' < w.until
      and exists (select from generate_series(0, 15) s where outlast._unseen(s::smallint, x.tick) is not null)
    order by c.id, b.since;
end $$;

create or replace function outlast._first_of_leaf(slot smallint) returns setof outlast._event
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  return query select * from outlast._event e where e.slot = _first_of_leaf.slot order by e.id limit 1;
end $$;

-- Old snapshots that this session may see: for them an emptied leaf would look empty, and a dump in them would be wrong.
create or replace function outlast._old_snapshots() returns table (kind text, about text, detail text)
language sql stable
as $$
  select 'snapshot', format('backend %s', a.pid),
         format('%s%s holds a snapshot since %s', coalesce(nullif(a.application_name, '') || ', ', ''), a.state, a.xact_start)
  from pg_catalog.pg_stat_activity a
  where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()
    and a.backend_type in ('client backend', 'walsender') and a.xact_start < clock_timestamp() - interval '1 minute'
$$;

-- What waits: for how long a leaf is kept, what holds it now, and who has its lock. For people; the rest decides by `_judge`.
create or replace function outlast._holds(ring text, slot smallint) returns table (kind text, about text, detail text)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  r outlast._ring_slot;
  w record;
  kept interval := outlast._setting_interval('retention.' || ring);
begin
  select * into strict r from outlast._ring_slot x where x.ring = _holds.ring and x.slot = _holds.slot;
  return query select 'settings', 'outlast apply', p from outlast._check_settings() p;
  if pg_relation_size(format(case ring when 'log' then 'outlast._event_%s' else 'outlast._processed_event_%s' end, slot)::regclass) = 0 then
    return;
  end if;
  if ring = 'log' then
    return query select * from outlast._log_needs(slot);
    if r.passed_at is null and not found then
      return query select 'settings', 'retention.log', 'nobody needs it any more; the next maintenance takes note of that';
    elsif r.passed_at is not null and r.passed_at + kept > outlast.clock() then
      return query select 'settings', 'retention.log', format('kept until %s, %s after its last consumer', r.passed_at + kept, outlast._setting('retention.log'));
    end if;
  else
    select * into w from outlast._inbox_window(slot);
    if slot = outlast._inbox_slot(outlast._v7_first(outlast.clock())) then
      return query select 'window', 'complete', format('completions are written to it until %s',
        w.until + make_interval(secs => 16 * outlast._inbox_slot_s()));
    end if;
    if r.emptied_until >= w.until then return; end if;
    if r.swept_until is null or r.swept_until < w.until then
      return query select * from outlast._sweep_needs(slot);
    end if;
    return query select * from outlast._inbox_needs(slot) x where x.kind <> 'window';
    if w.until + kept > outlast.clock() then
      return query select 'settings', 'retention.inbox', format('kept until %s, %s after its window', w.until + kept, outlast._setting('retention.inbox'));
    end if;
  end if;
  if coalesce(r.removable_at, case when ring = 'inbox' then r.passed_at end) + interval '1 hour' > outlast.clock() then
    return query select 'hour', 'snapshots', format('emptied an hour after it could be, from %s on',
      coalesce(r.removable_at, r.passed_at) + interval '1 hour');
  end if;
  return query select * from outlast._old_snapshots();
  return query
    select distinct 'lock', format('backend %s', l.pid), format('%s on %s', l.mode, l.relation::regclass)
    from pg_catalog.pg_locks l
    where r.tried_at > outlast.clock() - interval '10 minutes' and l.pid <> pg_backend_pid() and l.granted
      and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
      and l.relation = format(case ring when 'log' then 'outlast._event_%s' else 'outlast._processed_event_%s' end, slot)::regclass;
end $$;

-- Takes note of which leaves nobody needs, and since when. Answers those that may be emptied now: how.
create or replace function outlast._judge() returns table (ring text, slot smallint, how text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  r outlast._ring_slot;
  n outlast._ring_slot;
  w record;
  bare boolean;
  at timestamptz := outlast.clock();
  log_kept interval := outlast._setting_interval('retention.log');
  inbox_kept interval := outlast._setting_interval('retention.inbox');
begin
  perform outlast._check_isolation();
  for r in select * from outlast._ring_slot x order by x.ring, x.slot loop
    n := r;
    how := null;
    if r.ring = 'log' then
      if pg_relation_size(format('outlast._event_%s', r.slot)::regclass) = 0 or exists (select from outlast._log_needs(r.slot)) then
        n.passed_at := null;
      else
        n.passed_at := coalesce(r.passed_at, at);
      end if;
      n.removable_at := case when n.passed_at + log_kept <= at then coalesce(r.removable_at, at) end;
      if n.removable_at + interval '1 hour' <= at then how := 'empty'; end if;
    else
      select * into w from outlast._inbox_window(r.slot);
      n.passed_at := null;
      n.removable_at := null;
      if r.emptied_until is null or r.emptied_until < w.until then
        bare := pg_relation_size(format('outlast._processed_event_%s', r.slot)::regclass) = 0;
        if w.until + inbox_kept <= at and not exists (select from outlast._inbox_needs(r.slot)) then
          if bare then
            n.emptied_until := w.until;
            n.swept_until := w.until;
          else
            n.removable_at := coalesce(r.removable_at, at);
          end if;
        elsif (r.swept_until is null or r.swept_until < w.until) and not exists (select from outlast._sweep_needs(r.slot)) then
          if bare then
            n.swept_until := w.until;
          else
            n.passed_at := coalesce(r.passed_at, at);
          end if;
        end if;
      end if;
      how := case when n.removable_at + interval '1 hour' <= at then 'empty'
                  when n.passed_at + interval '1 hour' <= at then 'sweep' end;
    end if;
    if n is distinct from r then
      update outlast._ring_slot x
      set passed_at = n.passed_at, removable_at = n.removable_at, swept_until = n.swept_until, emptied_until = n.emptied_until
      where x.ring = r.ring and x.slot = r.slot;
    end if;
    if how is not null and (r.tried_at is null or r.tried_at + interval '1 minute' <= at) then
      ring := r.ring;
      slot := r.slot;
      return next;
    end if;
  end loop;
end $$;

-- Takes a leaf for this transaction alone, if that is to be had at once. First without waiting: who waits stands before all
-- who come after him, and readers lock every leaf. Only when that was tried often he waits, and not for long.
create or replace function outlast._take_leaf(leaf text) returns boolean
language plpgsql volatile
as $$
begin
  for i in 1..100 loop
    begin
      execute format('lock table only outlast.%I in access exclusive mode nowait', leaf);
      return true;
    exception when lock_not_available then
      perform pg_sleep(0.001 + random() * 0.004);
    end;
  end loop;
  perform set_config('lock_timeout', '30ms', true);
  begin
    execute format('lock table only outlast.%I in access exclusive mode', leaf);
    return true;
  exception when lock_not_available or query_canceled then
    return false;
  end;
end $$;

-- A leaf of one of the two rings, and nothing else.
create or replace function outlast._truncate_leaf(leaf text) returns void
language plpgsql volatile
as $$
begin
  if leaf !~ '^_(event|processed_event)_(\d|1[0-5])$' then
    raise exception '% is no leaf of a ring', quote_nullable(leaf) using errcode = 'OL005';
  end if;
  execute format('truncate only outlast.%I', leaf);
end $$;

-- Takes the lock of a leaf that may be emptied, if nobody needs it. Null: it is taken, and _empty_now comes next in the same
-- transaction; else why not. Two statements, because the caller bounds the second by statement_timeout: TRUNCATE waits for
-- the disk once an index, and claims wait for TRUNCATE.
create or replace function outlast._empty_take(ring text, slot smallint, how text) returns text
language plpgsql volatile
set jit = off
as $$
#variable_conflict use_column
declare
  r outlast._ring_slot;
  why text;
begin
  perform outlast._check_isolation();
  select 'settings: ' || p into why from outlast._check_settings() p limit 1;
  if why is not null then return why; end if;
  select * into r from outlast._ring_slot x where x.ring = _empty_take.ring and x.slot = _empty_take.slot for update;
  if (how = 'empty' and r.removable_at + interval '1 hour' <= outlast.clock()) is not true
    and (how = 'sweep' and r.passed_at + interval '1 hour' <= outlast.clock()) is not true then
    return 'not yet';
  end if;
  why := coalesce(outlast._needed(ring, slot, how), (select x.kind || ': ' || x.about from outlast._old_snapshots() x limit 1));
  if why is not null then return why; end if;
  update outlast._ring_slot x set tried_at = outlast.clock() where x.ring = _empty_take.ring and x.slot = _empty_take.slot;
  if not outlast._take_leaf(case ring when 'log' then '_event_' else '_processed_event_' end || slot) then return 'lock'; end if;
  return null;
end $$;

-- Empties the leaf whose lock was taken, if still nobody needs it: each statement from here on sees what committed before
-- we had the lock. Answers what came of it: emptied, or why not.
create or replace function outlast._empty_now(ring text, slot smallint, how text) returns text
language plpgsql volatile
set jit = off
as $$
#variable_conflict use_column
declare
  w record;
  leaf text := case ring when 'log' then '_event_' else '_processed_event_' end || slot;
  why text;
  bytes bigint;
  kept outlast._processed_event[] := '{}';
begin
  why := outlast._needed(ring, slot, how);
  if why is not null then return why; end if;
  bytes := pg_total_relation_size(format('outlast.%I', leaf)::regclass);
  if how = 'sweep' then
    kept := array(select p from outlast._rows_to_keep(slot) p);
  end if;
  perform outlast._truncate_leaf(leaf);
  insert into outlast._processed_event select (u).* from unnest(kept) u;
  if ring = 'inbox' then
    select * into w from outlast._inbox_window(slot);
    update outlast._ring_slot x set passed_at = null, removable_at = case when how = 'sweep' then x.removable_at end,
      swept_until = w.until, emptied_until = case when how = 'empty' then w.until else x.emptied_until end
    where x.ring = 'inbox' and x.slot = _empty_now.slot;
  else
    update outlast._ring_slot x set passed_at = null, removable_at = null where x.ring = 'log' and x.slot = _empty_now.slot;
  end if;
  perform outlast._audited('retention.' || how, format('%s slot %s', ring, slot), jsonb_build_object('bytes', bytes, 'kept', cardinality(kept)), 'maintenance');
  -- Nobody has to wait for a standby while we hold this lock: taken back by a failover it is done again.
  if current_setting('synchronous_commit') <> 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
  return 'emptied';
end $$;

create or replace function outlast._needed(ring text, slot smallint, how text) returns text
language plpgsql stable
as $$
begin
  return (
    select x.kind || ': ' || x.about || ', ' || x.detail
    from (
      select * from outlast._log_needs(slot) where ring = 'log'
      union all
      select * from outlast._inbox_needs(slot) where ring = 'inbox' and how = 'empty'
      union all
      select * from outlast._sweep_needs(slot) where ring = 'inbox' and how = 'sweep'
    ) x limit 1);
end $$;

-- The completions of a leaf that no bit proves.
create or replace function outlast._rows_to_keep(slot smallint) returns setof outlast._processed_event
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  return query
    select p.* from outlast._unfolded u
    cross join lateral (
      select * from outlast._processed_event p
      where p.slot = _rows_to_keep.slot and p.consumer = u.consumer and p.event_id = u.event_id offset 0) p
    where u.slot = _rows_to_keep.slot;
end $$;

-- Removes what has outlived its leaf, at most n rows a call: bits of ranges whose every slot was emptied, and what is noted
-- of rows that went with theirs. Answers how many.
create or replace function outlast._forget(n int) returns int
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c int;
  gone int;
  total int := 0;
  r record;
begin
  if exists (select from outlast._check_settings()) then return 0; end if;
  for c in select x.id from outlast._consumer x loop
    delete from outlast._folded f where f.ctid = any (array(
      select q.ctid
      from (select * from (select f.ctid, f.oldest_at, f.newest_at from outlast._folded f
                           where f.consumer = c order by f.base limit n) x) q
      where not exists (
        select from generate_series(floor(outlast._epoch(q.oldest_at) / outlast._inbox_slot_s())::bigint,
                                    floor(outlast._epoch(q.newest_at) / outlast._inbox_slot_s())::bigint) k
        join outlast._ring_slot s on s.ring = 'inbox' and s.slot = k % 16
        where s.emptied_until is null or s.emptied_until < to_timestamp((k + 1) * outlast._inbox_slot_s()))));
    get diagnostics gone = row_count;
    total := total + gone;
  end loop;
  for r in select x.slot, x.emptied_until from outlast._ring_slot x where x.ring = 'inbox' and x.emptied_until is not null loop
    delete from outlast._unfolded u where u.ctid = any (array(
      select v.ctid from outlast._unfolded v
      where v.slot = r.slot and v.event_id < outlast._v7_first(r.emptied_until) limit n));
    get diagnostics gone = row_count;
    total := total + gone;
  end loop;
  return total;
end $$;

-- Removes deduplication keys, at most n a call, a week after they began to answer `expired`. Answers how many.
create or replace function outlast._forget_keys(n int) returns int
language plpgsql volatile
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  gone int;
begin
  if exists (select from outlast._check_settings()) then return 0; end if;
  delete from outlast._dedup d where d.ctid = any (array(
    select x.ctid from outlast._dedup x
    where x.taken_at < outlast.clock() - outlast._setting_interval('retention.dedup') - interval '7 days'
    order by x.taken_at limit n));
  get diagnostics gone = row_count;
  return gone;
end $$;
