-- Lanes: where a consumer stands, and how tenants are taken apart so that none waits behind another one's backlog.
--
-- The log is read in the order of its ids, so a tenant with a large backlog stands before everybody else. When a page of
-- a main lane is full, more is waiting, and few tenants make up much of it, each of them gets a side lane, which begins
-- at the very same place and holds only this tenant. The main lane goes on from there without it: it runs ahead over what
-- the side lanes hold, and so finds everybody else, however far on. A side lane that has caught up goes back into its
-- main lane. Order is per tenant and key, and a lane changes only while nothing of it is in flight.

-- Where the lanes of these parts stand: the main lanes, and the side lanes that they name. One probe a lane: nothing
-- walks over what is dead.
create or replace function outlast._places(consumer int, parts int[]) returns setof outlast._batch
language plpgsql stable
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  main outlast._batch;
  side outlast._batch;
  l int;
begin
  foreach l in array parts loop
    select * into main from outlast._batch x
    where x.consumer = _places.consumer and x.lane = l order by x.seq desc limit 1;
    continue when not found;
    return next main;
    continue when main.sides is null;
    foreach l in array main.sides loop
      select * into side from outlast._batch x
      where x.consumer = _places.consumer and x.lane = l order by x.seq desc limit 1;
      if found then return next side; end if;
    end loop;
  end loop;
end $$;

-- All of them.
create or replace function outlast._places(consumer int) returns setof outlast._batch
language sql stable
as $$
  select p.* from outlast._consumer c
  cross join lateral outlast._places(c.id, array(select generate_series(0, c.lanes - 1))) p
  where c.id = _places.consumer
$$;

-- Is this row a place where a lane stands? All others may go when they are not in flight.
create or replace function outlast._is_place(place outlast._batch) returns boolean
language plpgsql stable
as $$
declare
  main outlast._batch;
begin
  if (place).seq < (select y.seq from outlast._batch y where y.consumer = (place).consumer and y.lane = (place).lane
                order by y.seq desc limit 1) then
    return false;
  end if;
  if (place).lane < 1024 then return true; end if;
  select * into main from outlast._batch y
  where y.consumer = (place).consumer and y.lane = (place).lane % 1024 order by y.seq desc limit 1;
  return coalesce((place).lane = any (main.sides), false);
end $$;

-- Is this row in flight? One probe, not a walk over the dead of the lane.
create or replace function outlast._in_flight(b outlast._batch) returns boolean
language sql stable
as $$
  select exists (select from outlast._lease l
                 where l.room = 'batch' and l.consumer = (b).consumer and l.lane = (b).lane and l.seq = (b).seq offset 0)
$$;

-- Was a tick begun after the transaction of another one had committed? After transaction ids restarted the base tells.
create or replace function outlast._later(t outlast._tick, than outlast._tick) returns boolean
language sql immutable parallel safe
as $$
  select (t).base > (than).base or (t).base = (than).base and pg_visible_in_snapshot((than).h, (t).snap)
$$;

-- The window in which a lane that stands here goes on: the rest of its own or, when that is used up, the one up to a
-- later tick. That is the newest tick which another lane has reached, so that lanes meet, else a new one.
-- Null: nothing is due. Unchanged: something is, but it takes a tick, and this transaction can make none any more.
create or replace function outlast._go_on(here outlast._batch, everyone outlast._batch[], until outlast._tick)
returns outlast._batch
language plpgsql volatile
as $$
declare
  t outlast._tick;
begin
  if here.hi < (here.b).hi then return here; end if;
  if (until).snap is not null then
    if not outlast._later(until, here.b) then return null; end if;
    t := until;
  elsif cardinality(everyone) > 1 then
    -- Later is what was begun after the other's transaction had committed: ticks of two parts may overlap.
    select (p.b).* into t from unnest(everyone) p
    where outlast._later(p.b, here.b) order by (p.b).base desc, (p.b).h desc limit 1;
  end if;
  if (t).snap is null then
    if not outlast._beyond(here.b) then return null; end if;
    if pg_current_xact_id_if_assigned() is not null then return here; end if;
    t := outlast._tick(here.b);
  end if;
  here.a := here.b;
  here.b := t;
  here.hi := case when exists (select from outlast._stragglers(here.a, here.b)) then 0 else (here.a).hi end;
  return here;
end $$;

-- The next page of a window for lanes that stand at one place: empty pieces are stepped over, up to max_scan ids. Pieces
-- grow where a main lane runs ahead over what its side lanes hold.
create or replace function outlast._page(
  w outlast._batch, c outlast._consumer, lanes int[], n int, max_bytes bigint, max_scan bigint,
  out lo bigint, out up bigint, out scanned bigint, out got outlast._found[])
language plpgsql stable
as $$
declare
  step bigint := greatest(n + 1, 1000);         -- one more than fits: that is how a full page is known
begin
  up := (w).hi;
  scanned := 0;
  loop
    lo := up;
    up := least(((w).b).hi, case when lo < ((w).a).hi then ((w).a).hi else lo + step end);
    got := array(select s from outlast._scan((w).a, (w).b, lo, up, n, max_bytes, c, lanes, (w).parts, (w).tenants, (w).without) s);
    if cardinality(got) > 0 then
      -- A full page left some behind in the range: the batch ends with its last event.
      if (got[cardinality(got)]).more then up := (got[cardinality(got)]).id; end if;
      -- Who reads it again need not begin before its first event.
      lo := (got[1]).id - 1;
      return;
    end if;
    -- Stragglers are read by their transactions, however far their ids reach.
    if lo >= ((w).a).hi then scanned := scanned + (up - lo); end if;
    exit when up >= ((w).b).hi or scanned >= max_scan;
    if (w).without is not null then step := least(step * 2, greatest(max_scan - scanned, 1000)); end if;
  end loop;
end $$;

-- Which tenants are to be taken apart, given a page: each row a side lane. Those that have an eighth of it, because a lane
-- reads over what is not its own; if there is none, those that come up again and again, in one lane together, if they
-- have half of it. Judged by a sample, and by 32 events at least.
create or replace function outlast._heavy(
  w outlast._batch, c outlast._consumer, lanes int[], lo bigint, up bigint, got outlast._found[])
returns setof text[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_variable
declare
  n int := cardinality(got);
  k int;
  tenants text[];
  counts int[];
begin
  if n = 0 or not (got[n]).more or cardinality((c).tenants) = 1 then return; end if;
  if n < 32 then
    got := array(select s from outlast._scan(
      (w).a, (w).b, lo, least(((w).b).hi, lo + 10000), 32, 1000000000, c, lanes, (w).parts, null, (w).without) s);
    n := cardinality(got);
    if n < 32 then return; end if;
  elsif ((w).b).hi - up < n then
    return;                                      -- not even another page
  end if;
  k := least(n, 64);
  select array_agg(t.tenant order by t.times desc), array_agg(t.times order by t.times desc) into tenants, counts
  from (
    select e.tenant, count(*)::int as times
    from generate_series(0, k - 1) i
    cross join lateral (
      select e.tenant from outlast._event e
      where e.slot = (got[1 + i * n / k]).slot and e.id = (got[1 + i * n / k]).id offset 0) e
    group by e.tenant) t;
  if counts[1] * 8 >= k then
    return query select array[t.u] from unnest(tenants, counts) t (u, times) where t.times * 8 >= k order by t.times desc;
  elsif (select sum(t.times) * 2 >= k from unnest(counts) t (times) where t.times > 1) then
    return query select array_agg(t.u) from unnest(tenants, counts) t (u, times) where t.times > 1;
  end if;
end $$;

-- Main lanes that stand at one place, without the tenants that are heavy in their page, and the new side lanes that hold
-- those and stand there too (at lo of this window); nothing if nobody is. At most so many side lanes more. Nothing is
-- written yet. A side lane's number is one that has no row.
create or replace function outlast._take_apart(
  mains outlast._batch[], w outlast._batch, c outlast._consumer, lo bigint, up bigint, got outlast._found[], most int)
returns setof outlast._batch
language plpgsql volatile
as $$
declare
  heavy text[];
  m outlast._batch;
  side outlast._batch;
  sides outlast._batch[] := '{}';
begin
  for heavy in select h from outlast._heavy(w, c, array(select p.lane from unnest(mains) p), lo, up, got) h loop
    exit when cardinality(sides) + cardinality(mains) > most;
    for i in 1..cardinality(mains) loop
      m := mains[i];
      side := m;
      side.lane := (
        select l from generate_series(m.lane + 1024, m.lane + 1048576, 1024) l
        where not exists (select from outlast._batch x where x.consumer = m.consumer and x.lane = l)
          and (m.sides is null or l <> all (m.sides))
        order by l limit 1);
      -- Above all that this number ever had: what is dead of it lies behind the living row.
      side.seq := greatest(m.seq, floor(extract(epoch from outlast.clock()) * 1000)::bigint);
      side.a := (w).a;
      side.b := (w).b;
      side.lo := _take_apart.lo;
      side.hi := _take_apart.lo;
      side.events := 0;
      side.tenants := heavy;
      side.without := null;
      side.sides := null;
      sides := sides || side;
      m.without := coalesce(m.without, '{}') || heavy;
      m.sides := coalesce(m.sides, '{}') || side.lane;
      mains[i] := m;
    end loop;
  end loop;
  if cardinality(sides) > 0 then
    return query select p.* from unnest(mains || sides) p;
  end if;
end $$;

-- The places once side lanes that have caught up are back in their main lane: both stand at the end of the same window.
create or replace function outlast._rejoined(places outlast._batch[]) returns outlast._batch[]
language plpgsql immutable
as $$
declare
  m outlast._batch;
  s outlast._batch;
  gone int[] := '{}';
begin
  for i in 1..cardinality(places) loop
    m := places[i];
    continue when m.sides is null or m.hi < (m.b).hi;
    foreach s in array places loop
      continue when s.lane = m.lane or s.lane % 1024 <> m.lane or s.hi < (s.b).hi or (s.b).h <> (m.b).h;
      m.without := (select array_agg(t) from unnest(m.without) t where t <> all (s.tenants));
      m.sides := (select array_agg(l) from unnest(m.sides) l where l <> s.lane);
      m.seq := greatest(m.seq, s.seq);
      gone := gone || s.lane;
    end loop;
    places[i] := m;
  end loop;
  return array(select p from unnest(places) p where p.lane <> all (gone));
end $$;

-- Writes where lanes stand now. The rows they replace go, unless they are still in flight; and those that a finish beside
-- an earlier claim has left, because neither of the two saw what the other did.
create or replace function outlast._stand(places outlast._batch[]) returns void
language plpgsql volatile
as $$
declare
  one outlast._batch;
begin
  if cardinality(places) = 1 then
    one := places[1];
    insert into outlast._batch select (one).*;
    delete from outlast._batch x where x.ctid = any (array(
      select y.ctid
      from (select x.ctid, x.seq from outlast._batch x
            where x.consumer = (one).consumer and x.lane = (one).lane and x.seq between (one).seq - 21 and (one).seq - 1
            order by x.seq offset 0) y
      where not exists (select from outlast._lease z
                        where z.room = 'batch' and z.consumer = (one).consumer and z.lane = (one).lane and z.seq = y.seq offset 0)));
    return;
  end if;
  insert into outlast._batch select p.* from unnest(places) p;
  -- By index and by place: in one join all the dead of the lane were walked.
  delete from outlast._batch x where x.ctid = any (array(
    select y.ctid
    from unnest(places) p
    cross join lateral (
      select x.ctid, x.lane, x.seq from outlast._batch x
      where x.consumer = p.consumer and x.lane = p.lane and x.seq between p.seq - 21 and p.seq - 1 order by x.seq offset 0) y
    where not exists (select from outlast._lease z
                      where z.room = 'batch' and z.consumer = p.consumer and z.lane = y.lane and z.seq = y.seq offset 0)));
end $$;

-- The lanes that are read together with one: they stand at its place and hold the same tenants, so one scan reads for all
-- of them, while a slow one still delays only itself.
create or replace function outlast._together(here outlast._batch, free outlast._batch[]) returns outlast._batch[]
language sql immutable
as $$
  select array(
    select p from unnest(free) p
    where p.hi = (here).hi and (p.b).h = ((here).b).h and ((here).hi >= ((here).b).hi or (p.a).h = ((here).a).h)
      and (p.lane >= 1024) = ((here).lane >= 1024)
      and p.tenants is not distinct from (here).tenants and p.without is not distinct from (here).without
    order by p.claimed_at, p.lane)
$$;

-- Of lanes that were read together, those that get a batch: the first ones to have something.
create or replace function outlast._first_lanes(got outlast._found[], most int) returns int[]
language sql immutable parallel safe
as $$
  select array_agg(f.lane) from (
    select g.lane from unnest(got) g group by g.lane order by min(g.id) limit most) f
$$;

-- Does this lane pause, because too many events are behind one of its keys?
create or replace function outlast._paused(b outlast._batch) returns boolean
language sql stable
as $$
  select exists (
    select from outlast._parked_key k
    where k.consumer = (b).consumer and k.at_limit
      and outlast._in_lane((b).lane, (b).parts, (b).tenants, (b).without, k.key, 0, k.tenant))
$$;

-- Removes what is left in these parts of side lanes that are back in their main lane, and of what they were before.
create or replace function outlast._forget_sides(consumer int, parts int[]) returns void
language sql volatile
as $$
  delete from outlast._batch x
  where x.consumer = _forget_sides.consumer and x.lane % 1024 = any (_forget_sides.parts)
    and not outlast._is_place(x) and not outlast._in_flight(x)
$$;
