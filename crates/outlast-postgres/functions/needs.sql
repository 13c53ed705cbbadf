-- Who still needs a leaf of one of the rings, and what holds it: asked before it is emptied (retention.sql), and by people.

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
    where newest.id is not null and c.broker is null and coalesce(f.next, 0) <= newest.id;
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
  where c.broker is null
  order by coalesce(f.next, 0) limit 1;
  -- Nobody reads the log: there is nothing to fold, and `_is_worth_sweeping` says no.
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
  select count(*) into n from (
    select from outlast._unfolded u where u.slot = _sweep_needs.slot limit outlast._carried_most() + 1) x;
  if n > outlast._carried_most() then
    return query select 'rows', 'skipped or parked', format('more than %s completions cannot be folded and need their rows', outlast._carried_most());
    return;
  end if;
  -- What came from a broker is never folded. A few rows are carried over the TRUNCATE; of more the rest is moved out before it, page by
  -- page, when nothing else is in its way.
  select count(*) into n from (select from outlast._never_folded(_sweep_needs.slot) limit outlast._carried_most() + 1) x;
  if n > outlast._carried_most() and outlast._is_worth_sweeping(_sweep_needs.slot) then
    return query select 'rows', 'brokers', format('more than %s completions of consumers on brokers are moved out of it first', outlast._carried_most());
  end if;
end $$;

-- How many rows are carried over the TRUNCATE of their leaf at most, while it is locked.
create or replace function outlast._carried_most() returns int
language sql stable parallel safe
as $$ select 5000 $$;

-- Whether a sweep gains anything: some rows have to go, and of a leaf with many that stay as many. 20,000 are many, however many the
-- others are.
create or replace function outlast._is_worth_sweeping(slot smallint) returns boolean
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  stay bigint;
  go bigint;
begin
  select count(*) into stay from (select from outlast._never_folded(_is_worth_sweeping.slot) limit 20000) x;
  if stay <= outlast._carried_most() then
    return exists (
      select from outlast._consumer c
      cross join lateral (
        select from outlast._processed_event p where p.slot = _is_worth_sweeping.slot and p.consumer = c.id limit 1) p
      where c.broker is null);
  end if;
  select count(*) into go from (
    select from outlast._consumer c
    cross join lateral (
      select from outlast._processed_event p where p.slot = _is_worth_sweeping.slot and p.consumer = c.id limit stay) p
    where c.broker is null limit stay) x;
  return go >= stay;
end $$;

-- The completions of this leaf that no bit will ever prove: of consumers that read a broker.
create or replace function outlast._never_folded(slot smallint) returns setof outlast._processed_event
language sql stable
as $$
  select p.* from outlast._consumer c
  cross join lateral (
    select * from outlast._processed_event p where p.slot = _never_folded.slot and p.consumer = c.id offset 0) p
  where c.broker is not null
$$;

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
    where p.consumer = c.id and not p.foreign_id and p.event_id < outlast._v7_first(w.until) and outlast._inbox_slot(p.event_id) = _inbox_needs.slot
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
