-- Windows: which events lie between two ticks. No loss, no stall behind an open writer, causal order.

-- A tick after `prev` of the same lane. The order of its three steps is the whole point: with `hi` read before the
-- snapshot events are delivered twice, with an own transaction id from before `hi` they are lost. The clock is read
-- between the two: what the snapshot sees was emitted before that, what has an id above `hi` after it. Steps are
-- assignments, each of which has a snapshot of its own as a statement has, and costs a tenth of one.
create or replace function outlast._tick(prev outlast._tick) returns outlast._tick
language plpgsql volatile
as $$
declare
  t outlast._tick;
  last bigint := (prev).hi;
  ours boolean;
begin
  if pg_current_xact_id_if_assigned() is not null or current_setting('transaction_isolation') <> 'read committed' then
    perform outlast._check_fresh();              -- which says what is wrong
  end if;
  if (pg_sequence_parameters('outlast._event_id'::regclass)).cache_size <> 1 then
    raise exception 'sequence outlast._event_id must have cache 1: with more, events would be lost'
      using errcode = 'OL011', hint = 'alter sequence outlast._event_id cache 1, then end the sessions that used it';
  end if;

  t.snap := pg_current_snapshot();
  t.at := outlast.clock();
  t.hi := coalesce(pg_sequence_last_value('outlast._event_id'), 0);
  t.h := pg_current_xact_id();
  select h.base, (select count(*) = 2 from outlast._marker m where m.own_xid::text::xid = m.xmin)
  into strict t.base, ours from outlast._house h;
  if not ours then
    raise exception 'stopped: this database was restored from a dump or copied logically: transaction ids restarted'
      using errcode = 'OL004', hint = 'run `outlast restore status`, then `outlast restore confirm`';
  end if;

  -- Who may still commit something with an id <= hi, and how old that can be: a transaction above prev.h drew its ids
  -- after prev.hi was read, so nothing of it is older than prev.at; and if no id was drawn since, it has none.
  if (prev).open is null and (prev).young is null then
    if t.hi > last and pg_snapshot_xmin(t.snap) <> pg_snapshot_xmax(t.snap) then
      t.open := (select array_agg(x order by x) from pg_snapshot_xip(t.snap) x);
      t.open_at := case when t.open is not null then array_fill((prev).at, array[cardinality(t.open)]) end;
    end if;
  else
    select array_agg(o.xid order by o.xid), array_agg(o.since order by o.xid) into t.open, t.open_at
    from (
      select x.xid, case when x.xid > (prev).h then (prev).at
                    else coalesce(k.since, (prev).young_at, (prev).at) end as since
      from pg_snapshot_xip(t.snap) x (xid)
      left join unnest((prev).open, (prev).open_at) k (xid, since) on k.xid = x.xid
      where t.hi > last or k.xid is not null or (x.xid >= (prev).young and x.xid <= (prev).h)
    ) o;
  end if;
  -- If no other transaction got an id between the snapshot and our own, there is none that might own one of these.
  if t.hi > last and t.h > pg_snapshot_xmax(t.snap) then
    t.young := pg_snapshot_xmax(t.snap);
    t.young_at := (prev).at;
  end if;
  return t;
end $$;

-- Before anything: the cut that has seen nothing.
create or replace function outlast._tick_zero() returns outlast._tick
language sql immutable parallel safe
as $$ select ('1:1:', 0, '1', '-infinity', null, null, null, null, 0)::outlast._tick $$;

-- What had committed at a cut, of all that has committed by now. Transaction ids may have restarted since, so they are
-- asked only between base and hi: those below had ended when it happened, those above were drawn after the cut.
create or replace function outlast._sees(snap pg_snapshot, hi bigint, base bigint, id bigint, xid xid8) returns boolean
language sql immutable parallel safe
as $$ select id <= base or id <= hi and pg_visible_in_snapshot(xid, snap) $$;

-- Now, as a cut: the snapshot first, as in a tick.
create or replace function outlast._cut_now() returns outlast._cut
language plpgsql volatile
as $$
declare
  c outlast._cut;
begin
  select pg_current_snapshot() into c.snap;
  select coalesce(pg_sequence_last_value('outlast._event_id'), 0) into c.hi;
  select h.base into strict c.base from outlast._house h;
  return c;
end $$;

-- The transactions of this leaf that have events above `base` here and lie in [from_xid, to_xid], each with its lowest id.
-- Walked from one to the next, never as a range: one of them may have many events. A row comparison, because without statistics
-- the planner thought nothing of walking the leaf by its primary key.
create or replace function outlast._writers(slot smallint, from_xid xid8, to_xid xid8, base bigint)
returns table (xid xid8, first bigint)
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  xid := from_xid;
  first := base;
  loop
    select e.xid, e.id into xid, first
    from outlast._event e
    where e.slot = _writers.slot and (e.xid, e.id) > (_writers.xid, _writers.first) and e.xid <= to_xid
      and e.id > base
    order by e.xid, e.id limit 1;
    exit when not found;
    return next;
    first := 9223372036854775807;
  end loop;
end $$;

-- Is there anything beyond this tick? Costs no transaction id. The sequence alone would miss a straggler. (After a rebase
-- the sequence alone says yes.)
create or replace function outlast._beyond(t outlast._tick) returns boolean
language plpgsql stable
as $$
declare
  s smallint;
begin
  if coalesce(pg_sequence_last_value('outlast._event_id'), 0) > (t).hi then return true; end if;
  if (t).open is not null and exists (
    select from unnest((t).open) o (xid) where pg_visible_in_snapshot(o.xid, pg_current_snapshot())) then
    return true;
  end if;
  if (t).young is not null then
    foreach s in array outlast._log_slots((t).young_at, outlast.clock()) loop
      if exists (select from outlast._writers(s, (t).young, (t).h, (t).base) w where w.first <= (t).hi) then return true; end if;
    end loop;
  end if;
  return false;
end $$;

-- The stragglers of a window: transactions that tick a did not see ended and tick b did, with how old they can be. If
-- transaction ids restarted in between, b has seen the end of all of them.
create or replace function outlast._stragglers(a outlast._tick, b outlast._tick)
returns table (xid xid8, since timestamptz)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  s smallint;
begin
  return query
    select o.xid, o.since from unnest((a).open, (a).open_at) o (xid, since)
    where (a).hi <= (b).base or pg_visible_in_snapshot(o.xid, (b).snap);
  if (a).young is null then return; end if;
  foreach s in array outlast._log_slots((a).young_at, (b).at) loop
    return query
      select w.xid, (a).young_at from outlast._writers(s, (a).young, (a).h, (a).base) w
      where w.first <= (a).hi and ((a).hi <= (b).base or pg_visible_in_snapshot(w.xid, (b).snap));
  end loop;
end $$;

-- Events of these parts and tenants in the window (a, b] with lo < id <= up, in id order, at most n rows and max_bytes
-- (the first row always; n null: all): all stragglers come before all others, because their ids are <= a.hi and the
-- others' are above. Every filter stands inside of the limits, else a full page of other lanes would hide what follows it.
-- One statement a leaf; the plan is kept, because to plan it anew took a quarter of a drain's time, and all plans but the
-- one along an index are switched off, because a kept plan may be from the time when the table was empty. A switched off
-- plan counts as dear, and what counts as dear is compiled: 50 ms a claim, hence no JIT. Lists of tenants are subqueries,
-- because those are hashed: `= any` of a list that is not a constant is walked for each event (64 tenants: 0.9 us against 0.4).
create or replace function outlast._scan(
  a outlast._tick, b outlast._tick, lo bigint, up bigint, n int, max_bytes bigint, c outlast._consumer, lanes int[],
  parts int, tenants text[], without text[])
returns setof outlast._found
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  s smallint;
  types text[];
  patterns text[];
  late boolean;
  xids xid8[];
  since timestamptz;
  one_more bigint := coalesce(n::bigint + 1, 9223372036854775807);
  visible pg_snapshot := (b).snap;               -- a scalar: a field of a row would be unpacked for each event
  of_id int := (c).id;
  of_tenants text[] := coalesce(tenants, (c).tenants);   -- a side lane holds tenants of the consumer only
  of_sources text[] := (c).sources;
  below bigint := (a).hi;
  base bigint := (b).base;
  got outlast._found[] := '{}';
begin
  select array_agg(t.type) filter (where t.since is null and t.type not like '%*'),
         array_agg(outlast._like(t.type)) filter (where t.since is null and t.type like '%*'),
         bool_or(t.since is not null)
  into types, patterns, late
  from outlast._consumer_type t where t.consumer = of_id;

  if lo < (a).hi then
    select array_agg(distinct x.xid), min(x.since) into xids, since from outlast._stragglers(a, b) x;
    if xids is not null then
      -- Up to b, not a: a writer may read its id before a and, on a machine that was suspended, its clock long after.
      foreach s in array outlast._log_slots(since, (b).at) loop
        got := got || array(
          select row(e.slot, e.id, e.event_id, outlast._lane(e.key, e.id, _scan.parts), octet_length(e.payload), false)::outlast._found
          from unnest(xids) x (xid)
          cross join lateral (
            select * from outlast._event e
            where e.slot = s and e.xid = x.xid and e.id > greatest(_scan.lo, (a).base) and e.id <= least(_scan.up, below)
              and (of_tenants is null or e.tenant in (select unnest(of_tenants)))
              and (_scan.without is null or e.tenant not in (select unnest(_scan.without)))
              and (e.type = any (types) or e.type like any (patterns) or late and outlast._counts(of_id, e.type, e.id, e.xid))
              and (of_sources is null or e.source = any (of_sources))
              and (_scan.parts = 1 or outlast._lane(e.key, e.id, _scan.parts) = any (_scan.lanes))
            order by e.id limit one_more) e
          order by e.id limit one_more);
      end loop;
    end if;
  end if;
  if cardinality(got) < one_more and up > (a).hi then
    -- Tenants first: a main lane steps over long runs of what its side lanes hold.
    foreach s in array outlast._log_slots((a).at, (b).at) loop
      got := got || array(
        select row(e.slot, e.id, e.event_id, outlast._lane(e.key, e.id, _scan.parts), octet_length(e.payload), false)::outlast._found
        from outlast._event e
        where e.slot = s and e.id > greatest(_scan.lo, below) and e.id <= _scan.up
          and (of_tenants is null or e.tenant in (select unnest(of_tenants)))
          and (_scan.without is null or e.tenant not in (select unnest(_scan.without)))
          and (e.id <= base or pg_visible_in_snapshot(e.xid, visible))
          and (e.type = any (types) or e.type like any (patterns) or late and outlast._counts(of_id, e.type, e.id, e.xid))
          and (of_sources is null or e.source = any (of_sources))
          and (_scan.parts = 1 or outlast._lane(e.key, e.id, _scan.parts) = any (_scan.lanes))
        order by e.id limit one_more);
    end loop;
  end if;

  -- Nearly always all of it fits, and the sums below are half of the work.
  if n is null or (select sum(f.size) from unnest(got) f) <= max_bytes then
    return query
      select f.slot, f.id, f.event_id, f.lane, f.size, cardinality(got) > n from unnest(got) f order by f.id limit n;
    return;
  end if;
  return query
    select p.slot, p.id, p.event_id, p.lane, p.size, p.nth < p.total as more
    from (
      select f.slot, f.id, f.event_id, f.lane, f.size,
             sum(f.size) over (order by f.id rows unbounded preceding) as bytes,
             row_number() over (order by f.id) as nth,
             count(*) over () as total
      from unnest(got) f
    ) p
    where p.nth <= n and (p.bytes <= max_bytes or p.nth = 1)
    order by p.id;
end $$;

-- Does an event belong to this consumer? By its type (one that was added later counts from then on), tenant and source.
create or replace function outlast._counts(consumer int, type text, id bigint, xid xid8) returns boolean
language sql stable
as $$
  select exists (
    select from outlast._consumer_type t
    where t.consumer = _counts.consumer and outlast._matches(_counts.type, t.type)
      and (t.since is null or not outlast._sees((t.since).snap, (t.since).hi, (t.since).base, _counts.id, _counts.xid)))
$$;

create or replace function outlast._takes(consumer int, type text, tenant text, source text, id bigint, xid xid8) returns boolean
language sql stable
as $$
  select outlast._counts(_takes.consumer, _takes.type, _takes.id, _takes.xid) and exists (
    select from outlast._consumer c
    where c.id = _takes.consumer and (c.tenants is null or _takes.tenant = any (c.tenants))
      and (c.sources is null or _takes.source = any (c.sources)))
$$;

-- Is a type this entry of a consumer, which may be a pattern?
create or replace function outlast._matches(type text, entry text) returns boolean
language sql immutable parallel safe
as $$ select type = entry or right(entry, 1) = '*' and starts_with(type, left(entry, -1)) $$;

-- A pattern of types, as LIKE reads it.
create or replace function outlast._like(pattern text) returns text
language sql immutable parallel safe
as $$ select replace(left(pattern, -1), '_', '\_') || '%' $$;

-- Which part of an ordered consumer a key belongs to; events without a key go anywhere.
create or replace function outlast._lane(key text, id bigint, parts int) returns int
language sql immutable parallel safe
as $$ select case when parts = 1 then 0
             else abs((case when key is null then id else hashtextextended(key, 0) end) % parts)::int end $$;

-- Does an event belong to this lane?
create or replace function outlast._in_lane(
  lane int, parts int, tenants text[], without text[], key text, id bigint, tenant text)
returns boolean
language sql immutable parallel safe
as $$
  select outlast._lane(_in_lane.key, _in_lane.id, _in_lane.parts) = _in_lane.lane % 1024
     and (_in_lane.tenants is null or _in_lane.tenant = any (_in_lane.tenants))
     and (_in_lane.without is null or _in_lane.tenant <> all (_in_lane.without))
$$;
