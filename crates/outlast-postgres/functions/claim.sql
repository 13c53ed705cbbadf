-- The claim: one batch of the log for one consumer, under a fenced lease.

-- What this batch has to end with, before anything of it is done.
create or replace function outlast._batch_rows(b outlast._batch)
returns table (slot smallint, id bigint, event_id uuid)
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return query
    select s.slot, s.id, s.event_id
    from outlast._consumer c
    cross join lateral outlast._scan(
      (b).a, (b).b, (b).lo, (b).hi, null, null, c, array[(b).lane % 1024], (b).parts, (b).tenants, (b).without) s
    where c.id = (b).consumer;
end $$;

-- Which of these events this consumer has completed: those with a row, else those with a bit (see fold.sql). Fenced to one
-- index probe an id: with `= any` and no fresh statistics the planner read the consumer's whole leaf (13 ms a thousand
-- against 1). Log ids save the look for them where the caller has them.
create or replace function outlast._sealed(consumer int, ids uuid[], log_ids bigint[] default null) returns setof uuid
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  s smallint;
  found_ids uuid[];
  n int := 0;
  young uuid;
begin
  foreach s in array outlast._inbox_slots(ids) loop
    found_ids := array(
      select p.event_id
      from unnest(ids) u (id)
      cross join lateral (
        select p.event_id from outlast._processed_event p
        where p.slot = s and p.consumer = _sealed.consumer and p.event_id = u.id
        offset 0) p);
    n := n + cardinality(found_ids);
    return query select unnest(found_ids);
  end loop;
  if n >= cardinality(ids) then return; end if;
  if exists (select from outlast._foreign_event f where f.consumer = _sealed.consumer) then
    return query
      select f.event_id from unnest(ids) u (id)
      cross join lateral (
        select f.event_id from outlast._foreign_event f where f.consumer = _sealed.consumer and f.event_id = u.id offset 0) f;
  end if;
  -- Nothing is folded before it is a day old, and an own id is at most 12 hours ahead of its event.
  young := outlast._v7_first(outlast.clock() - interval '11 hours');
  if not exists (select from unnest(ids) u where u < young) then return; end if;
  -- Nor is anything moved out of its leaf before that is over.
  return query
    select m.event_id from unnest(ids) u (id)
    cross join lateral (
      select m.event_id from outlast._moved_event m
      where m.slot = outlast._inbox_slot(u.id) and m.consumer = _sealed.consumer and m.event_id = u.id offset 0) m
    where u.id < young;
  if exists (select from outlast._folded f where f.consumer = _sealed.consumer) then
    return query
      select u.id from unnest(ids, log_ids) u (id, log_id)
      where u.id < young and not exists (
          select from outlast._processed_event p
          where p.slot = outlast._inbox_slot(u.id) and p.consumer = _sealed.consumer and p.event_id = u.id offset 0)
        and outlast._bit(_sealed.consumer, coalesce(u.log_id, outlast._log_id(_sealed.consumer, u.id)));
  end if;
end $$;

-- What this consumer has parked since a batch was claimed: nothing else can be of that batch. A minute covers a clock
-- that was set. Along _parked_since: the dead versions of what was parked long ago may be many.
create or replace function outlast._recently_parked(consumer int, claimed_at timestamptz) returns setof uuid
language plpgsql stable
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  return query select p.event_id from outlast._parked p
    where p.parked_at >= _recently_parked.claimed_at - interval '1 minute'
      and p.consumer + 0 = _recently_parked.consumer         -- + 0: not by the primary key
    order by p.parked_at;
end $$;

-- What is left of a batch: window - inbox - parked. Computed under the exclusive lease, in a statement after it.
create or replace function outlast._left(b outlast._batch)
returns table (slot smallint, id bigint, event_id uuid)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  slots smallint[];
  ids bigint[];
  events uuid[];
  done uuid[];
begin
  if (b).events = 0 then return; end if;
  select array_agg(r.slot), array_agg(r.id), array_agg(r.event_id) into slots, ids, events
  from outlast._batch_rows(b) r;
  if events is null then return; end if;
  done := array(select * from outlast._sealed((b).consumer, events, ids));
  if cardinality(done) = cardinality(events) then return; end if;
  done := done || array(select * from outlast._recently_parked((b).consumer, (b).claimed_at));
  return query
    select r.slot, r.id, r.event_id from unnest(slots, ids, events) r (slot, id, event_id)
    where not exists (select from unnest(done) d (u) where d.u = r.event_id)
    order by r.id;
end $$;

-- The events themselves, one leaf at a time. A hash join of the ids with a walk of their range: `= any` of a list that is
-- not known when the plan is made is searched from its start for each event (2 ms a thousand against 0.4).
create or replace function outlast._events(slots smallint[], ids bigint[]) returns setof outlast._event
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
as $$
declare
  s smallint;
  of_slot bigint[];
begin
  for s, of_slot in
    select u.slot, array_agg(u.id order by u.id) from unnest(slots, ids) u (slot, id) group by u.slot order by min(u.id) loop
    return query select e.* from outlast._event e
      where e.slot = s and e.id >= of_slot[1] and e.id <= of_slot[cardinality(of_slot)]
        and e.id in (select unnest(of_slot))
      order by e.id;
  end loop;
end $$;

-- Writes what this process must find again after a failover (see _process), in the commit of what it let out. That
-- commit waits for the disk, whatever the session's habit: a mark that a crash takes back looks like rewound history.
create or replace function outlast._remember(process uuid, seq bigint, nonce uuid, acked bigint) returns void
language plpgsql volatile
as $$
#variable_conflict use_variable
begin
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  insert into outlast._process (process, seq, nonce, written_at) values (process, seq, nonce, outlast.clock());
  -- Some at once, and from below nothing: under a held snapshot the dead ones of a whole day would be walked each time.
  if seq % 16 = 0 then
    delete from outlast._process p where p.process = _remember.process and p.seq between acked - 50 and acked - 1;
  end if;
end $$;

-- The consumer, if it may claim now; else null. Refuses what could never be right.
create or replace function outlast._claimable(consumer int) returns outlast._consumer
language plpgsql stable
as $$
declare
  c outlast._consumer;
begin
  select * into c from outlast._consumer x where x.id = _claimable.consumer;
  if c.id is null then
    raise exception 'consumer % is not registered', _claimable.consumer using errcode = 'OL012';
  end if;
  if pg_is_in_recovery() then
    raise exception 'a claim needs the primary; this server is a standby' using errcode = 'OL009';
  end if;
  perform outlast._check_fresh();
  perform outlast._check_running(c.id);
  if c.state <> 'active' then return null; end if;
  return c;
end $$;

-- Claimers of one consumer take turns; answers the parts that this one may claim of. Whoever comes second waits for the
-- first one, who took no more lanes than he had places for: told that there was nothing, he would believe it until the next
-- news. Parts that an operator holds are left out. Advisory locks, because a row lock would take a transaction id before
-- the tick.
create or replace function outlast._lock_parts(c outlast._consumer) returns int[]
language plpgsql volatile
as $$
begin
  perform pg_advisory_xact_lock(outlast._lane_lock((c).id, 0));
  if not (c).ordered then return array[0]; end if;
  return (select array_agg(l order by l) from generate_series(0, (c).lanes - 1) l
          where l = 0 or pg_try_advisory_xact_lock(outlast._lane_lock((c).id, l)));
end $$;

-- A new batch for each of some free lanes that stand at one place, about `n` events each; at most `max_lanes` main lanes
-- or `side_lanes` side lanes (as many, if not told). The lane that was claimed least recently comes first: one that
-- lags starves no other. Takes its own tick when a window is used up. Answers no row when there is nothing, one row
-- without a token when it only moved over what is not this consumer's, or not this lane's, and there may be more.
create or replace function outlast._claim_in_general(
  consumer int, n int, max_bytes bigint, max_scan int, lease_ms int, max_lanes int,
  process uuid, seq bigint, nonce uuid, acked bigint, holder text, side_lanes int)
returns setof outlast._claimed
language plpgsql volatile
set jit = off
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  parts int[];
  everyone outlast._batch[];                     -- where all lanes stand
  free outlast._batch[];                         -- those that nobody works for, in the order of their turns
  pending outlast._batch[] := '{}';              -- places that change, if nothing else does, at the end
  here outlast._batch;
  w outlast._batch;
  together outlast._batch[];
  apart outlast._batch[];
  page record;
  got outlast._found[] := '{}';
  joined int[];                                  -- parts of which side lanes have come back
  room int;
  taken int[];
  written int[] := '{}';
  scanned bigint := 0;
  rest boolean := false;
  i int := 0;
  at timestamptz := outlast.clock();
  only_moved outlast._claimed;
  fresh uuid;
begin
  c := outlast._claimable(_claim_in_general.consumer);
  if c.id is null then return; end if;
  parts := outlast._lock_parts(c);
  if parts is null then return; end if;
  -- Their places, in a statement after the locks; and the consumer again, because the number of lanes changes under them.
  select * into c from outlast._consumer x where x.id = c.id;
  everyone := array(select p from outlast._places(c.id, parts) p);
  if c.lanes_wanted is not null and cardinality(parts) = c.lanes and outlast._change_lanes(c, everyone) then
    return next only_moved;
    return;
  end if;
  free := array(
    select p from unnest(everyone) p
    where not c.ordered or not outlast._in_flight(p) and not outlast._paused(p)
    order by p.claimed_at, p.lane);
  if cardinality(everyone) > cardinality(parts) then
    apart := outlast._rejoined(free);
    pending := array(select p from unnest(apart) p join unnest(free) f on f.lane = p.lane where f.sides is distinct from p.sides);
    joined := array(select p.lane from unnest(pending) p);
    free := apart;
  end if;

  while i < cardinality(free) and scanned < max_scan loop
    i := i + 1;
    here := free[i];
    room := case when here.lane >= 1024 then coalesce(side_lanes, max_lanes) else max_lanes end;
    continue when here.lane = any (written) or room < 1;
    w := outlast._go_on(here, everyone, c.lanes_until);
    continue when w.consumer is null;
    if here.hi >= (here.b).hi and (w.b).h = (here.b).h then
      rest := true;
      continue;
    end if;
    together := case when cardinality(free) = 1 then free
                else outlast._together(here, array(select p from unnest(free) p where p.lane <> all (written))) end;
    parts := array(select p.lane % 1024 from unnest(together) p);
    loop
      page := outlast._page(w, c, parts, n * least(room, cardinality(parts)), max_bytes, max_scan - scanned);
      scanned := scanned + page.scanned;
      -- Tenants that fill the page of a main lane are taken apart, and what is left of it may be another one's.
      exit when here.lane >= 1024 or cardinality(page.got) = 0 or not (page.got[cardinality(page.got)]).more;
      apart := array(select p from outlast._take_apart(
        together, w, c, page.lo, page.up, page.got,
        greatest(64, 4 * c.lanes) - (select count(*)::int from unnest(everyone || pending) p where p.lane >= 1024)) p);
      exit when cardinality(apart) = 0;
      together := array(select p from unnest(apart) p where p.lane < 1024);
      apart := array(select p from unnest(apart) p where p.lane >= 1024);
      pending := pending || apart;
      free := free || apart;
      w.hi := page.lo;
      w.without := together[1].without;
    end loop;

    got := page.got;
    -- No more lanes than were asked for get a batch: those of the first events. The others, if they have any, stay here.
    if room < cardinality(together) and cardinality(got) > 0 then
      taken := outlast._first_lanes(got, room);
      together := array(select p from unnest(together) p
                        where p.lane % 1024 = any (taken) or p.lane % 1024 not in (select g.lane from unnest(got) g));
      got := array(select g from unnest(got) g where g.lane = any (taken) order by g.id);
    end if;
    -- From here on this transaction has an id, and there is no tick any more.
    got := outlast._set_behind(c, got);
    together := array(
      select row(p.consumer, p.lane, p.seq + 1, w.a, w.b, page.lo, page.up,
                 (select count(*) from unnest(got) g where g.lane = p.lane % 1024), at,
                 p.parts, p.tenants, p.without, p.sides)::outlast._batch
      from unnest(together) p);
    perform outlast._stand(together);
    written := written || array(select p.lane from unnest(together) p);
    everyone := everyone || together;
    exit when cardinality(got) > 0;
    rest := rest or page.up < (w.b).hi;
  end loop;

  -- What changed besides: side lanes that are new, and main lanes that theirs have come back to.
  pending := array(select p from unnest(pending) p where p.lane <> all (written));
  if cardinality(pending) > 0 then
    perform outlast._stand(array(
      select row(p.consumer, p.lane, p.seq + 1, p.a, p.b, p.hi, p.hi, 0, p.claimed_at, p.parts, p.tenants, p.without, p.sides)::outlast._batch
      from unnest(pending) p));
  end if;
  if cardinality(joined) > 0 then
    perform outlast._forget_sides(c.id, joined);
  end if;
  if cardinality(got) = 0 then
    -- All lanes may be at the common place now.
    rest := rest or c.lanes_wanted is not null and cardinality(written || joined) > 0;
    if rest or i < cardinality(free) then return next only_moved; end if;
    return;
  end if;

  -- What leaves is durable before.
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if process is not null then
    perform outlast._remember(process, seq, nonce, acked);
  end if;
  if cardinality(together) = 1 then
    -- One lane: its rows need no join, and come in order.
    fresh := gen_random_uuid();
    here := together[1];
    insert into outlast._lease (token, room, consumer, lane, seq, process, holder, events, ids_xor, expires_at)
    values (fresh, 'batch', here.consumer, here.lane, here.seq, _claim_in_general.process, _claim_in_general.holder, here.events,
            outlast._ids_xor(array(select g.event_id from unnest(got) g)), at + make_interval(secs => lease_ms / 1000.0));
    return query
      select fresh, e.event_id, e.id, e.type, e.schema_version::int, e.tenant, e.key, e.actor, e.correlation_id,
             e.causation_id, e.traceparent, e.headers, e.source, e.subject, e.aggregate_version, e.content_type,
             e.codec_key, e.payload, e.emitted_at, 1, 0, here.lane, e.key_seq
      from outlast._events(array(select g.slot from unnest(got) g), array(select g.id from unnest(got) g)) e;
    return;
  end if;
  return query
    with lease as (
      insert into outlast._lease (token, room, consumer, lane, seq, process, holder, events, ids_xor, expires_at)
      select gen_random_uuid(), 'batch', c.id, p.lane, p.seq, _claim_in_general.process, _claim_in_general.holder, p.events,
             outlast._ids_xor(array(select g.event_id from unnest(got) g where g.lane = p.lane % 1024)),
             at + make_interval(secs => lease_ms / 1000.0)
      from unnest(together) p
      where p.lane % 1024 in (select g.lane from unnest(got) g)
      returning token, lane
    )
    select l.token, e.event_id, e.id, e.type, e.schema_version::int, e.tenant, e.key, e.actor, e.correlation_id,
           e.causation_id, e.traceparent, e.headers, e.source, e.subject, e.aggregate_version, e.content_type,
           e.codec_key, e.payload, e.emitted_at, 1, 0, l.lane, e.key_seq
    from outlast._events((select array_agg(g.slot) from unnest(got) g), (select array_agg(g.id) from unnest(got) g)) e
    join lease l on l.lane % 1024 = outlast._lane(e.key, e.id, w.parts)
    order by e.id;
end $$;

-- Whoever claims or ends a batch reads, in each statement, what has committed by then: an older snapshot would claim a
-- second time what another claimer took, and would park what is sealed.
create or replace function outlast._check_isolation() returns void
language plpgsql stable
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'claims run in READ COMMITTED, not in %', upper(current_setting('transaction_isolation'))
      using errcode = 'OL010';
  end if;
end $$;

-- A claim commits before its work begins, and its tick must have no transaction id before `hi` is read.
create or replace function outlast._check_fresh() returns void
language plpgsql stable
as $$
begin
  perform outlast._check_isolation();
  if pg_current_xact_id_if_assigned() is not null then
    raise exception 'a claim runs in a transaction of its own, which has written nothing before' using errcode = 'OL010';
  end if;
end $$;
