-- Folding: completions of long ago become bits, one for each log id. What was a row of 174 bytes is then a bit, and the
-- rows go with the next TRUNCATE of their leaf. Deleting them one by one cost as much as writing them had.

-- What every consumer has surely left behind: for each lane a tick of which it handled everything visible, down to the
-- end, and the same for each batch in flight. The one place that knows how progress is kept.
create or replace function outlast._stands(who int default null)
returns table (consumer int, lane int, seq bigint, leased boolean, tick outlast._tick)
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return query
    select n.consumer, n.lane, n.seq, w.leased, case when w.leased or n.hi < (n.b).hi then n.a else n.b end
    from outlast._consumer c
    cross join lateral outlast._places(c.id) n
    cross join lateral (select outlast._in_flight(n) as leased offset 0) w
    where _stands.who is null or c.id = _stands.who
    union all
    select b.consumer, b.lane, b.seq, true, b.a
    from outlast._consumer c
    cross join lateral outlast._in_work(c.id) l
    cross join lateral (select * from outlast._batch b
                        where b.consumer = l.consumer and b.lane = l.lane and b.seq = l.seq offset 0) b
    where _stands.who is null or c.id = _stands.who;
end $$;

-- Did whoever stands at this tick see what this transaction wrote?
create or replace function outlast._saw(tick outlast._tick, xid xid8, id bigint) returns boolean
language sql stable parallel safe
as $$ select outlast._sees((_saw.tick).snap, (_saw.tick).hi, (_saw.tick).base, _saw.id, _saw.xid) $$;

-- From when on the transactions that still run may own an id at or below this tick; null: none does.
create or replace function outlast._outstanding(tick outlast._tick) returns timestamptz
language sql stable
as $$
  select least(
    (select min(o.since) from unnest((tick).open, (tick).open_at) o (xid, since)
     where not pg_visible_in_snapshot(o.xid, pg_current_snapshot())),
    case when (tick).young is not null and (tick).h >= pg_snapshot_xmin(pg_current_snapshot()) then (tick).young_at end)
$$;

-- The smallest v7 id of a time.
create or replace function outlast._v7_first(at timestamptz) returns uuid
language sql immutable parallel safe
as $$ select rpad(lpad(to_hex(greatest(0, floor(extract(epoch from at - timestamptz '1970-01-01 00:00:00+00') * 1000))::bigint), 12, '0'), 32, '0')::uuid $$;

-- Is this id's bit set for this consumer?
create or replace function outlast._bit(consumer int, log_id bigint) returns boolean
language plpgsql stable
as $$
begin
  return coalesce((
    select get_bit(f.done, (_bit.log_id % 8192)::int) = 1 from outlast._folded f
    where f.consumer = _bit.consumer and f.base = _bit.log_id / 8192 * 8192), false);
end $$;

-- The log id of an event of which only the event id is known; null when neither the log nor parked has it any more.
create or replace function outlast._log_id(consumer int, id uuid) returns bigint
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  leaf smallint := outlast._log_slot(outlast._v7_time(id));
  found_id bigint;
begin
  select p.log_id into found_id from outlast._parked p where p.consumer = _log_id.consumer and p.event_id = _log_id.id;
  if found_id is null then
    select e.id into found_id from outlast._event e where e.slot = leaf and e.event_id = _log_id.id;
  end if;
  if found_id is null then
    select e.id into found_id from outlast._event e where e.event_id = _log_id.id;
  end if;
  return found_id;
end $$;

-- Bits at these places of 8,192.
create or replace function outlast._bits(places int[]) returns bytea
language plpgsql immutable parallel safe
as $$
begin
  return (
    select decode(string_agg(lpad(to_hex(coalesce(b.v, 0)), 2, '0'), '' order by k), 'hex')
    from generate_series(0, 1023) k
    left join (select n / 8 as k, sum(1 << (n % 8)) as v from unnest(places) n group by 1) b using (k));
end $$;

-- The outcomes of these events, of those that have a row. Found by a walk over the range in which their ids must lie, and
-- those few with an own id from elsewhere by a probe each.
create or replace function outlast._outcomes(consumer int, ids bigint[], events uuid[], lo uuid, hi uuid)
returns table (id bigint, event_id uuid, outcome "char")
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  s smallint;
begin
  for s in select distinct outlast._inbox_slot(x.u) from (values (lo), (hi)) x (u) loop
    return query
      select u.id, u.event_id, p.outcome::"char"
      from (select * from outlast._processed_event p
            where p.slot = s and p.consumer = _outcomes.consumer and p.event_id >= lo and p.event_id < hi offset 0) p
      join unnest(ids, events) u (id, event_id) on u.event_id = p.event_id;
  end loop;
  for s in select distinct outlast._inbox_slot(u) from unnest(events) u where u < lo or u >= hi loop
    return query
      select u.id, u.event_id, p.outcome::"char"
      from unnest(ids, events) u (id, event_id)
      cross join lateral (
        select p.outcome from outlast._processed_event p
        where p.slot = s and p.consumer = _outcomes.consumer and p.event_id = u.event_id offset 0) p
      where u.event_id < lo or u.event_id >= hi;
  end loop;
end $$;

-- Folds the next range of one consumer, of at most 8,192 ids; no row when there is nothing to fold yet. A range is folded
-- when it is full, or when its log slot is over and waits for it.
-- Invariant: what is below the place can change by the lease of a parked event only, because everything else of it was
-- seen and ended. So parked is read before the inbox: a completion between the two is found in one of them.
create or replace function outlast._fold(consumer int)
returns table (first bigint, last bigint, completed int, kept int)
language plpgsql volatile
set jit = off
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  place bigint;
  base bigint;                                  -- of its range of bits
  up bigint;
  cutoff timestamptz := outlast.clock() - outlast._setting_interval('retention.fold_after');
  ticks outlast._tick[];
  t outlast._tick;
  s smallint;
  ids bigint[] := '{}';
  events uuid[] := '{}';
  xids xid8[] := '{}';
  ats timestamptz[] := '{}';
  stop bigint;
  parked uuid[];
  lo timestamptz;
  hi timestamptz;
  done bigint[];
  done_events uuid[];
  rest uuid[];
  old outlast._folded;
  bits bytea;
begin
  perform outlast._check_isolation();
  select * into c from outlast._consumer x where x.id = _fold.consumer;
  -- What came from a broker has no place in the log by which it could be folded.
  if c.id is null or c.broker is not null or not pg_try_advisory_xact_lock(outlast._lock_room(7313) + c.id) then return; end if;
  select p.next into place from outlast._fold_place p where p.consumer = c.id order by p.next desc limit 1;
  select e.id, e.emitted_at into first, lo from outlast._first_row(coalesce(place, 0)) e;
  if first is null or lo >= cutoff then return; end if;
  base := first / 8192 * 8192;

  -- A retired consumer passes nothing any more; what of it is not in flight is settled.
  ticks := array(select p.tick from outlast._stands(c.id) p where p.leased or c.state <> 'retired');
  foreach t in array ticks loop
    -- Who draws ids for a day and has not ended may own one of these.
    if outlast._outstanding(t) < cutoff + interval '1 hour' then return; end if;
  end loop;
  for s in select x::smallint from generate_series(0, 15) x loop
    select ids || array_agg(e.id order by e.id), events || array_agg(e.event_id order by e.id),
           xids || array_agg(e.xid order by e.id), ats || array_agg(e.emitted_at order by e.id)
    into ids, events, xids, ats
    from outlast._event e where e.slot = s and e.id >= first and e.id < base + 8192;
  end loop;
  select min(u.id) into stop from unnest(ids, ats) u (id, at) where u.at >= cutoff;
  foreach t in array ticks loop
    select least(stop, min(u.id)) into stop from unnest(ids, xids) u (id, xid) where not outlast._saw(t, u.xid, u.id);
  end loop;
  if stop is null and exists (select from outlast._first_row(base + 8192) e where e.emitted_at < cutoff) then
    up := base + 8191;
  else
    -- Part of a range: only so that its log slot does not wait for the rest of it.
    select max(u.id), min(u.at) into up, lo from unnest(ids, ats) u (id, at) where stop is null or u.id < stop;
    if up is null or lo >= cutoff - make_interval(secs => outlast._log_slot_s()) then return; end if;
  end if;

  select array_agg(u.id), array_agg(u.event_id), min(u.at) - interval '1 second', max(u.at) + interval '1 second'
  into ids, events, lo, hi from unnest(ids, events, ats) u (id, event_id, at) where u.id <= up;
  parked := array(
    select p.event_id from outlast._parked p
    where p.consumer = c.id and p.event_id >= (select u from unnest(events) u order by u limit 1)
      and p.event_id <= (select u from unnest(events) u order by u desc limit 1));
  select array_agg(o.id) filter (where o.outcome = 'd'), array_agg(o.event_id) filter (where o.outcome = 'd'),
         array_agg(o.event_id) filter (where o.outcome <> 'd')
  into done, done_events, rest
  from outlast._outcomes(c.id, ids, events, outlast._v7_first(lo), outlast._v7_first(hi)) o;

  select * into old from outlast._folded f where f.consumer = c.id and f.base = _fold.first / 8192 * 8192;
  completed := coalesce(cardinality(done), 0);
  if completed > 0 and (completed >= 8 or old.base is not null) then
    select least(old.oldest_at, min(outlast._v7_time(u))), greatest(old.newest_at, max(outlast._v7_time(u)))
    into lo, hi from (select u from unnest(done_events) u order by u) u;
    delete from outlast._folded f where f.consumer = c.id and f.base = old.base;
    insert into outlast._folded (consumer, base, done, completed, oldest_at, newest_at, folded_at)
    select c.id, base, outlast._bits(b.places), cardinality(b.places), lo, hi, outlast.clock()
    from (select array_agg(p.n) as places from (
            select (n % 8192)::int as n from unnest(done) n
            union
            select n from generate_series(0, 8191) n where old.base is not null and get_bit(old.done, n) = 1) p) b;
  else
    completed := 0;
    rest := rest || done_events;
  end if;
  kept := 0;
  rest := rest || array(select u from unnest(parked) u where u in (select unnest(events)));
  if cardinality(rest) > 0 then
    insert into outlast._unfolded (slot, consumer, event_id)
    select outlast._inbox_slot(u), c.id, u from unnest(rest) u on conflict do nothing;
    get diagnostics kept = row_count;
  end if;
  last := up;
  insert into outlast._fold_place (consumer, next) values (c.id, up + 1) on conflict do nothing;
  delete from outlast._fold_place p where p.consumer = c.id and p.next between place and up;
  return next;
end $$;

-- The lowest id in the log from here on, over all leaves.
create or replace function outlast._first_row(from_id bigint) returns setof outlast._event
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  s smallint;
  e outlast._event;
  least outlast._event;
begin
  for s in select x::smallint from generate_series(0, 15) x loop
    select * into e from outlast._event x where x.slot = s and x.id >= from_id order by x.id limit 1;
    if e.id is not null and (least.id is null or e.id < least.id) then least := e; end if;
  end loop;
  if least.id is not null then return next least; end if;
end $$;

-- Notes that this event may get a row of its own although its consumer is folded beyond it. Whoever parks an event that
-- its consumer has passed long ago (a replay, a redirect) calls this in the same transaction, or the row would go with
-- the next sweep of its leaf.
create or replace function outlast._keep_row(consumer int, id uuid, log_id bigint) returns void
language sql volatile
as $$
  insert into outlast._unfolded (slot, consumer, event_id)
  select outlast._inbox_slot(_keep_row.id), _keep_row.consumer, _keep_row.id
  where exists (select from outlast._fold_place p where p.consumer = _keep_row.consumer and p.next > _keep_row.log_id)
  on conflict do nothing
$$;

-- What is known of an event and a consumer, before it is handed out again by whatever road:
--   done, skipped   it has been completed
--   open            it has not, and that is certain
--   too-old         it may have been completed, and the proof is gone: an incident, never a handler's
-- Where it can arise: a replay, a redirect, a restored copy, an id from outside; not in a claim of the log, because a leaf
-- of the inbox waits for every event that is undelivered, in flight or parked.
create or replace function outlast._proof(consumer int, id uuid, log_id bigint default null) returns text
language plpgsql stable
as $$
#variable_conflict use_column
declare
  s smallint := outlast._inbox_slot(_proof.id);
  own boolean := substr(_proof.id::text, 15, 1) = '7';
  n bigint := _proof.log_id;
  known text;
begin
  select case p.outcome when 'd' then 'done' else 'skipped' end into known
  from outlast._processed_event p where p.slot = s and p.consumer = _proof.consumer and p.event_id = _proof.id;
  if known is not null then return known; end if;
  select case f.outcome when 'd' then 'done' else 'skipped' end into known
  from outlast._foreign_event f where f.consumer = _proof.consumer and f.event_id = _proof.id;
  if known is not null then return known; end if;
  select case m.outcome when 'd' then 'done' else 'skipped' end into known
  from outlast._moved_event m where m.slot = s and m.consumer = _proof.consumer and m.event_id = _proof.id;
  if known is not null then return known; end if;
  if not own then return 'too-old'; end if;      -- its time says nothing of when it was completed
  n := coalesce(n, outlast._log_id(_proof.consumer, _proof.id));
  if n is not null and outlast._bit(_proof.consumer, n) then return 'done'; end if;
  if exists (select from outlast._ring_slot r
             where r.ring = 'inbox' and r.slot = s and r.emptied_until > outlast._v7_time(_proof.id)) then
    return 'too-old';
  end if;
  -- Without its log id nobody can tell which bit is its own; before anything of its age was folded it has none.
  if n is null and exists (select from outlast._folded f where f.consumer = _proof.consumer
                             and f.oldest_at <= outlast._v7_time(_proof.id) and f.newest_at >= outlast._v7_time(_proof.id)) then
    return 'too-old';
  end if;
  return 'open';
end $$;
