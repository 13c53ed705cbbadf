-- Consumers: registration by the code that is one, state by its operators, and the door for other languages.

-- Registers a consumer, or the types it did not have yet. Its start is a tick: nothing that committed before counts for
-- 'now', everything still in the log does for 'earliest'. A type added later counts from its own registration on: what
-- lies behind the consumer's place was stepped over (only before its first claim 'earliest' still takes all).
-- Runs in a transaction of its own. Answers the id and the number of lanes that counts.
create or replace function outlast._register(
  name text, types text[], start text default 'now', ordered boolean default false, lane_count int default 16,
  owner text default null, attempts int default 8, local boolean default false,
  tenants text[] default null, sources text[] default null)
returns table (id int, lanes int, state text, reason text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  t outlast._tick;
  added text[];
  now outlast._cut;
begin
  if name is null or name !~ '^[a-z0-9._/-]{1,100}$' then
    raise exception 'consumer % is not 1 to 100 of a-z 0-9 . _ / -', quote_nullable(left(name, 120)) using errcode = 'OL005';
  end if;
  if coalesce(cardinality(types), 0) = 0 then
    raise exception 'consumer % has no event type', name using errcode = 'OL005';
  end if;
  if start is null or start not in ('now', 'earliest') then
    raise exception 'consumer %: start % is not now or earliest', name, quote_nullable(start) using errcode = 'OL005';
  end if;
  if lane_count not between 1 and 1024 or attempts < 1 then
    raise exception 'consumer %: % lanes are not 1 to 1024, or % attempts are not one', name, lane_count, attempts
      using errcode = 'OL005';
  end if;
  perform outlast._check_filters(name, types, tenants, sources);
  perform pg_advisory_xact_lock(hashtextextended('consumer ' || name, outlast._lock_room(7308)));
  perform outlast._check_alive(name);
  select * into c from outlast._consumer x where x.name = _register.name;
  if c.id is null then
    t := outlast._tick(outlast._tick_zero());
    if start = 'earliest' then t := outlast._tick_zero(); end if;
    insert into outlast._consumer as x (name, ordered, lanes, tenants, sources, start, began, local, owner, attempts, created_at)
    values (_register.name, _register.ordered, case when _register.ordered then _register.lane_count else 1 end,
            outlast._as_set(_register.tenants), outlast._as_set(_register.sources),
            _register.start, row((t).snap, (t).hi, (t).base)::outlast._cut, _register.local, _register.owner, _register.attempts, outlast.clock())
    returning * into c;
    insert into outlast._consumer_type (consumer, type) select distinct c.id, u from unnest(types) u;
    insert into outlast._batch (consumer, lane, seq, a, b, lo, hi, events, claimed_at, parts)
    select c.id, l, 0, t, t, (t).hi, (t).hi, 0, outlast.clock(), c.lanes from generate_series(0, c.lanes - 1) l;
  else
    if c.broker is not null then
      raise exception 'consumer % is registered as one that reads a broker (%)', name, c.broker
        using errcode = 'OL005', hint = 'what it reads is part of what a consumer is: give the one on the log another name';
    end if;
    if c.ordered <> ordered then
      raise exception 'consumer % is registered as %', name, case when c.ordered then 'ordered' else 'not ordered' end
        using errcode = 'OL005', hint = 'order is part of what a consumer is: give the other kind another name';
    end if;
    if (c.tenants, c.sources) is distinct from (outlast._as_set(tenants), outlast._as_set(sources)) then
      raise exception 'consumer % is registered for tenants % and sources %', name, coalesce(c.tenants::text, 'of all'), coalesce(c.sources::text, 'of all')
        using errcode = 'OL005', hint = 'a filter is part of what a consumer is: give the other one another name';
    end if;
    -- In one order with claims: a claim sees either none of a new type or all that counts.
    perform pg_advisory_xact_lock(outlast._lane_lock(c.id, l)) from generate_series(0, c.lanes - 1) l;
    added := array(select distinct u from unnest(types) u
                   where not exists (select from outlast._consumer_type y where y.consumer = c.id and y.type = u));
    if cardinality(added) > 0 then
      now := outlast._cut_now();
      insert into outlast._consumer_type (consumer, type, since)
      select c.id, u, case when c.start = 'now' or exists (select from outlast._batch b where b.consumer = c.id and b.seq > 0)
                        then now end
      from unnest(added) u;
    end if;
    -- Local once is not local for ever; the other way round a person would have to know that all of the old work has ended.
    update outlast._consumer x
    set owner = coalesce(_register.owner, x.owner), attempts = _register.attempts, local = x.local and _register.local
    where x.id = c.id and (x.owner, x.attempts, x.local)
      is distinct from (coalesce(_register.owner, x.owner), _register.attempts, x.local and _register.local);
  end if;
  return query select c.id, c.lanes, c.state, c.reason;
end $$;

-- What a consumer may ask for: types or patterns of them (what begins with all but the last character, a *), tenants,
-- sources.
create or replace function outlast._check_filters(name text, types text[], tenants text[], sources text[]) returns void
language plpgsql stable
as $$
declare
  u text;
begin
  foreach u in array types loop
    if u like '%*' then
      if u !~ '^[a-z0-9._/-]{0,99}\*$' then
        raise exception 'consumer %: pattern % is not up to 99 of a-z 0-9 . _ / - and a *', name, quote_nullable(left(u, 120)) using errcode = 'OL005';
      end if;
    else
      perform outlast._check_envelope(u, '', null, null, 1, 'application/json');
    end if;
  end loop;
  if cardinality(tenants) = 0 or cardinality(sources) = 0 or array_position(tenants, null) is not null
    or array_position(sources, null) is not null then
    raise exception 'consumer %: a filter of tenants or sources names none', name using errcode = 'OL005';
  end if;
  if cardinality(tenants) > 100 or cardinality(sources) > 100 then
    raise exception 'consumer %: a filter names more than 100 tenants or sources', name using errcode = 'OL005';
  end if;
end $$;

-- The same names in the same order, each once.
create or replace function outlast._as_set(names text[]) returns text[]
language sql immutable parallel safe
as $$ select array_agg(distinct n order by n) from unnest(names) n $$;

-- A deploy never un-pauses: only this does.
create or replace function outlast.pause(consumer text, reason text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  update outlast._consumer c set state = 'paused', reason = outlast._clean(pause.reason)
  where c.name = pause.consumer and c.state in ('active', 'paused');
  if not found then
    perform outlast._named(pause.consumer);
    perform outlast._check_alive(pause.consumer);
  end if;
  perform outlast._audited('consumer.paused', pause.consumer, jsonb_build_object('reason', outlast._clean(pause.reason)));
end $$;

create or replace function outlast.resume(consumer text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  update outlast._consumer c set state = 'active', reason = null
  where c.name = resume.consumer and c.state in ('active', 'paused');
  if not found then
    perform outlast._named(resume.consumer);
    perform outlast._check_alive(resume.consumer);
  end if;
  perform outlast._audited('consumer.resumed', resume.consumer);
  notify outlast_wake;
end $$;

-- For other languages: a consumer with these types. From Rust the worker does it. `ordered` keeps the order of each key;
-- `lanes` is how many claims of it can be in work at once, and counts at the first registration.
create or replace function outlast.register(
  consumer text, types text[], start text default 'now', ordered boolean default false, lanes int default 16) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform outlast._register(register.consumer, register.types, register.start, register.ordered, register.lanes);
end $$;

-- The claim for any language. Commits at once; no row means nothing is due. Work of a lapsed lease comes first, then
-- what waits for another try, then new events. Of an ordered consumer it hands out one lane: handle its rows one after the
-- other, and leave out those of a key after one of them has failed, because they wait behind it.
create or replace function outlast.claim(
  kind text, name text, n int default 1, lease_ms int default 15000, holder text default null)
returns table (token uuid, id uuid, key text, tenant text, attempt int, version int, payload bytea, content_type text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c int;
  got outlast._claimed[];
begin
  if kind is null or kind not in ('event', 'job', 'command', 'entity') then
    raise exception 'claim: kind % is not event, job, command or entity', quote_nullable(kind) using errcode = 'OL005';
  end if;
  perform outlast._check_fresh();
  if n is null or n not between 1 and 1000 then
    raise exception 'claim: n of % is not between 1 and 1000', n using errcode = 'OL005';
  end if;
  perform outlast._check_lease_ms(lease_ms);
  if kind in ('job', 'command', 'entity') then
    return query select j.token, j.id, j.key, j.tenant, j.attempt, j.schema_version, j.payload, j.content_type
      from outlast._claim_job(outlast._queue(left(kind, 1)::"char", claim.name), n, lease_ms, holder) j;
    return;
  end if;
  c := (outlast._named(claim.name)).id;
  perform outlast._check_alive(claim.name);
  -- The first two take a transaction id only when they take something; then there is no tick after them.
  got := array(select r from outlast._reclaim(c, lease_ms, 1, holder => claim.holder, sweep => false) r);
  if cardinality(got) = 0 and pg_current_xact_id_if_assigned() is null then
    got := array(select r from outlast._claim_parked(c, 1, lease_ms, null, null, holder => claim.holder) r);
  end if;
  if cardinality(got) = 0 and pg_current_xact_id_if_assigned() is null then
    got := array(select r from outlast._claim(c, n, 4194304, 10000, lease_ms, 1, holder => claim.holder) r
                 where r.token is not null);
  end if;
  perform outlast._sweep(c, holder);
  if cardinality(got) = 0 then
    -- What waited behind the event that this holder has completed last is due now.
    got := array(select r from outlast._claim_parked(c, 1, lease_ms, null, null, holder => claim.holder) r);
  end if;
  return query
    select g.token, g.event_id, g.key, g.tenant, g.attempt, g.schema_version, g.payload, g.content_type
    from unnest(got) g;
end $$;

-- The one process of the database that polls, or does maintenance: a lease, not a session lock, so that it works behind a
-- pooler.
create or replace function outlast._elect(process uuid, token uuid, lease_ms int, room text default 'poller') returns uuid
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  mine uuid;
begin
  update outlast._lease l set expires_at = outlast.clock() + make_interval(secs => lease_ms / 1000.0)
  where l.token = _elect.token and l.room = _elect.room returning l.token into mine;
  if mine is not null then return mine; end if;
  if not pg_try_advisory_xact_lock(outlast._lock_room(case _elect.room when 'poller' then 7309 else 7312 end)) then return null; end if;
  delete from outlast._lease l
  where l.room = _elect.room and (l.expires_at < outlast.clock() or l.expires_at > outlast.clock() + interval '6 minutes')
    and l.room in ('poller', 'maintenance');
  insert into outlast._lease (token, room, process, expires_at)
  values (gen_random_uuid(), _elect.room, _elect.process, outlast.clock() + make_interval(secs => lease_ms / 1000.0))
  on conflict do nothing
  returning token into mine;
  return mine;
end $$;
