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
    cross join lateral outlast._scan((b).a, (b).b, (b).lo, (b).hi, null, null, c, array[(b).lane]) s
    where c.id = (b).consumer;
end $$;

-- Which of these events this consumer has completed. Fenced to one index probe an id: with `= any` and no fresh
-- statistics the planner read the consumer's whole leaf (13 ms a thousand against 1).
create or replace function outlast._sealed(consumer int, ids uuid[]) returns setof uuid
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  s smallint;
begin
  for s in select distinct outlast._inbox_slot(u) from unnest(ids) u loop
    return query
      select p.event_id
      from unnest(ids) u (id)
      cross join lateral (
        select p.event_id from outlast._processed_event p
        where p.slot = s and p.consumer = _sealed.consumer and p.event_id = u.id
        offset 0) p;
  end loop;
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
  done := array(select * from outlast._sealed((b).consumer, events));
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
  -- From below nothing: under a held snapshot the dead ones of a whole day would be walked each time.
  delete from outlast._process p where p.process = _remember.process and p.seq between acked - 50 and acked - 1;
end $$;

-- A new batch for each free lane that stands at the foremost common place, at most `n` events each.
-- Takes its own tick when the window is used up. Answers no row when there is nothing, one row without a token when it
-- only moved over events that are not this consumer's and there may be more.
create or replace function outlast._claim(
  consumer int, n int, max_bytes bigint, max_scan int, lease_ms int, max_lanes int,
  process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null,
  holder text default null)
returns setof outlast._claimed
language plpgsql volatile
set jit = off
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  here outlast._batch;
  a outlast._tick;
  b outlast._tick;
  lanes int[];
  seqs bigint[];
  elsewhere boolean;
  lo bigint;
  up bigint;
  scanned bigint := 0;
  got outlast._found[];
  at timestamptz;
  only_moved outlast._claimed;
begin
  select * into c from outlast._consumer x where x.id = _claim.consumer;
  if c.id is null then
    raise exception 'consumer % is not registered', _claim.consumer using errcode = 'OL012';
  end if;
  if pg_is_in_recovery() then
    raise exception 'a claim needs the primary; this server is a standby' using errcode = 'OL009';
  end if;
  perform outlast._check_fresh();
  perform outlast._check_running();
  if c.state <> 'active' then return; end if;

  -- Claimers of one lane take turns. An advisory lock, because a row lock would take a transaction id before the tick.
  if c.ordered then
    select array_agg(l) into lanes from generate_series(0, c.lanes - 1) l
    where pg_try_advisory_xact_lock(outlast._lane_lock(c.id, l));
    if lanes is null then return; end if;
  else
    perform pg_advisory_xact_lock(outlast._lane_lock(c.id, 0));
    lanes := array[0];
  end if;

  -- Their progress, in a statement after the lock. Lanes at the same place are read together.
  select array_agg(p.lane order by p.lane), array_agg(p.seq order by p.lane), max(p.free) > count(*)
  into lanes, seqs, elsewhere
  from (
    select q.*, count(*) over () as free, row_number() over (partition by (q.b).h, q.hi order by q.lane) as nth,
           first_value((q.b).h) over w as h0, first_value(q.hi) over w as hi0
    from (
      select x.* from unnest(lanes) u (lane)
      cross join lateral (
        select * from outlast._batch x where x.consumer = c.id and x.lane = u.lane order by x.seq desc limit 1) x
    ) q
    -- What is in flight in an ordered lane is its newest batch: one probe, not a walk over the dead of the lane.
    where not c.ordered or not exists (
      select from outlast._lease l where l.room = 'batch' and l.consumer = c.id and l.lane = q.lane and l.seq = q.seq offset 0)
    window w as (order by q.hi, (q.b).h rows between unbounded preceding and unbounded following)
  ) p
  where (p.b).h = p.h0 and p.hi = p.hi0 and p.nth <= max_lanes;
  if lanes is null then return; end if;
  select * into strict here from outlast._batch x where x.consumer = c.id and x.lane = lanes[1] and x.seq = seqs[1];

  if here.hi >= (here.b).hi then
    if not outlast._beyond(here.b) then return; end if;
    a := here.b;
    b := outlast._tick(a);
    lo := case when exists (select from outlast._stragglers(a, b)) then 0 else (a).hi end;
  else
    a := here.a;
    b := here.b;
    lo := here.hi;
  end if;
  up := lo;

  -- A bounded piece of the window. Empty pieces are stepped over here, up to max_scan ids.
  loop
    lo := up;
    up := least((b).hi, case when lo < (a).hi then (a).hi else lo + greatest(n * cardinality(lanes), 1000) end);
    got := array(select s from outlast._scan(a, b, lo, up, n * cardinality(lanes), max_bytes, c, lanes) s);
    if cardinality(got) > 0 then
      -- A full page left some behind in the range: the batch ends with its last event.
      if (got[cardinality(got)]).more then up := (got[cardinality(got)]).id; end if;
      exit;
    end if;
    -- Stragglers are read by their transactions, however far their ids reach.
    if lo >= (a).hi then scanned := scanned + (up - lo); end if;
    exit when up >= (b).hi or scanned >= max_scan;
  end loop;

  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  at := outlast.clock();
  insert into outlast._batch (consumer, lane, seq, a, b, lo, hi, events, claimed_at)
  select c.id, l.lane, l.seq + 1, a, b, lo, up,
         (select count(*) from unnest(got) g where g.lane = l.lane), at
  from unnest(lanes, seqs) l (lane, seq);
  -- The rows they replace go, unless they are still in flight; and those that a finish beside an earlier claim has left,
  -- because neither of the two saw what the other did.
  -- By index and by place: in one join all the dead of the lane were walked.
  delete from outlast._batch x where x.ctid = any (array(
    select y.ctid
    from unnest(lanes, seqs) l (lane, seq)
    cross join lateral (
      select x.ctid, x.lane, x.seq from outlast._batch x
      where x.consumer = c.id and x.lane = l.lane and x.seq between l.seq - 20 and l.seq order by x.seq offset 0) y
    where not exists (select from outlast._lease z
                      where z.room = 'batch' and z.consumer = c.id and z.lane = y.lane and z.seq = y.seq offset 0)));
  if cardinality(got) = 0 then
    -- What is due may lie further on, or in other lanes that stand elsewhere.
    if up < (b).hi or elsewhere then return next only_moved; end if;
    return;
  end if;
  if process is not null then
    perform outlast._remember(process, seq, nonce, acked);
  end if;
  return query
    with lease as (
      insert into outlast._lease (token, room, consumer, lane, seq, process, holder, expires_at)
      select gen_random_uuid(), 'batch', c.id, l.lane, l.seq + 1, _claim.process, _claim.holder,
             at + make_interval(secs => lease_ms / 1000.0)
      from unnest(lanes, seqs) l (lane, seq)
      where exists (select from unnest(got) g where g.lane = l.lane)
      returning token, lane
    )
    select l.token, e.event_id, e.id, e.type, e.schema_version::int, e.tenant, e.key, e.actor, e.correlation_id,
           e.causation_id, e.traceparent, e.headers, e.source, e.subject, e.aggregate_version, e.content_type,
           e.codec_key, e.payload, e.emitted_at, 1, 0
    from outlast._events((select array_agg(g.slot) from unnest(got) g), (select array_agg(g.id) from unnest(got) g)) e
    join lease l on l.lane = outlast._lane(e.key, e.id, c.lanes)
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

-- Nobody claims while a person must look first.
create or replace function outlast._check_running() returns void
language plpgsql stable
as $$
declare
  why text;
begin
  select h.stopped into why from outlast._house h;
  if why is not null then
    raise exception 'stopped: %', why using errcode = 'OL004';
  end if;
end $$;
