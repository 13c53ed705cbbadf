-- The lease: who owns what is in flight. A writer under a lease proves it in the transaction that commits; whoever ends
-- a lease takes the row first and then the advisory lock, both exclusively.

-- Proves a token to the end of this transaction, in every isolation level, and answers whose it is.
-- READ COMMITTED: a shared advisory lock, then a read in the next statement. A plain read alone would let a stale
-- runner commit; `for share` would block renewal. Above READ COMMITTED the snapshot is older than the lock, so the row
-- itself is locked: a reclaimed one then fails with 40001.
create or replace function outlast._prove(token uuid) returns outlast._lease
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  l outlast._lease;
begin
  if current_setting('transaction_isolation') = 'read committed' then
    perform pg_advisory_xact_lock_shared(outlast._lease_lock(_prove.token));
    select * into l from outlast._lease x where x.token = _prove.token;
  else
    select * into l from outlast._lease x where x.token = _prove.token for key share;
  end if;
  if l.token is null then
    raise exception 'lease % is lost: somebody newer owns its work', _prove.token using errcode = 'OL001';
  end if;
  return l;
end $$;

-- Takes a lease exclusively, waiting for every open seal under it; null when it is gone.
create or replace function outlast._take(token uuid) returns outlast._lease
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  l outlast._lease;
begin
  select * into l from outlast._lease x where x.token = _take.token for update;
  if l.token is not null then
    perform pg_advisory_xact_lock(outlast._lease_lock(_take.token));
  end if;
  return l;
end $$;

-- A transaction that seals may neither commit asynchronously nor stay open far beyond its lease.
create or replace function outlast._guard(expires_at timestamptz) returns void
language plpgsql volatile
as $$
declare
  rest_ms bigint := greatest(1000, (extract(epoch from expires_at - outlast.clock()) * 1000)::bigint);
  rest interval := make_interval(secs => rest_ms / 1000.0);
  which text;
  was interval;
begin
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  foreach which in array case when current_setting('server_version_num')::int >= 170000
    then array['idle_in_transaction_session_timeout', 'transaction_timeout']
    else array['idle_in_transaction_session_timeout'] end loop
    was := current_setting(which)::interval;
    if was = interval '0' or was > rest then
      perform set_config(which, rest_ms::text, true);
    end if;
  end loop;
end $$;

-- The shared lock without a seal, for handlers with several transactions. In a savepoint that is rolled back it
-- protects nothing.
create or replace function outlast.fence(token uuid) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform outlast._prove(token);
end $$;

-- Moves the end of a lease to lease_ms from now.
create or replace function outlast.renew(token uuid, lease_ms int default 15000) returns timestamptz
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  until timestamptz;
begin
  perform outlast._check_lease_ms(lease_ms);
  update outlast._lease l set expires_at = outlast.clock() + make_interval(secs => lease_ms / 1000.0)
  where l.token = renew.token and l.expires_at > 'epoch'
  returning l.expires_at into until;
  if until is null then
    raise exception 'lease % is lost: somebody newer owns its work', renew.token using errcode = 'OL001';
  end if;
  return until;
end $$;

-- Renews many leases; answers those that still exist. One that somebody is ending right now is left to him: while he
-- waits for an open seal, a renewal that waited for him would let all the others lapse.
create or replace function outlast._renew_all(tokens uuid[], lease_ms int) returns setof uuid
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  with free as materialized (
    select x.token from outlast._lease x where x.token = any (tokens) and x.expires_at > 'epoch' for no key update skip locked
  )
  update outlast._lease l set expires_at = outlast.clock() + make_interval(secs => lease_ms / 1000.0)
  from free where l.token = free.token;
  return query select l.token from outlast._lease l where l.token = any (tokens);
end $$;

-- The leases of a consumer's batches, each lane read from its floor on.
create or replace function outlast._in_work(consumer int) returns setof outlast._lease
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  before int := -1;                              -- lanes up to this one have been read
  f record;
begin
  for f in
    select x.lane, max(x.seq) as seq from outlast._lease_floor x
    where x.consumer = _in_work.consumer group by x.lane order by x.lane
  loop
    return query
      select l.* from outlast._lease l
      where l.room = 'batch' and l.consumer = _in_work.consumer and l.lane > before and l.lane < f.lane;
    return query
      select l.* from outlast._lease l
      where l.room = 'batch' and l.consumer = _in_work.consumer and l.lane = f.lane and l.seq >= f.seq;
    before := f.lane;
  end loop;
  return query
    select l.* from outlast._lease l where l.room = 'batch' and l.consumer = _in_work.consumer and l.lane > before;
end $$;

-- Moves the floors of lanes that have come a thousand batches further.
-- Invariant: what this statement sees of a lane is all that there is up to its place. A lane is claimed by one at a time,
-- each time above its place, and a takeover keeps the number.
create or replace function outlast._raise_floors(consumer int) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  f record;
begin
  for f in
    select p.lane, least(p.seq, w.seq) as seq
    from outlast._places(_raise_floors.consumer) p
    left join (select l.lane, min(l.seq) as seq from outlast._in_work(_raise_floors.consumer) l group by l.lane) w on w.lane = p.lane
    left join (select x.lane, max(x.seq) as seq from outlast._lease_floor x
               where x.consumer = _raise_floors.consumer group by x.lane) old on old.lane = p.lane
    where least(p.seq, w.seq) > coalesce(old.seq, 0) + 1000
  loop
    insert into outlast._lease_floor (consumer, lane, seq) values (_raise_floors.consumer, f.lane, f.seq) on conflict do nothing;
    delete from outlast._lease_floor x where x.consumer = _raise_floors.consumer and x.lane = f.lane and x.seq < f.seq;
  end loop;
end $$;

-- An end further away than the longest lease was not written by us: somebody set a clock.
create or replace function outlast._lapsed(expires_at timestamptz) returns boolean
language sql volatile
as $$ select expires_at < outlast.clock() or expires_at > outlast.clock() + interval '5 minutes 1 second' $$;

create or replace function outlast._check_lease_ms(lease_ms int) returns void
language plpgsql immutable parallel safe
as $$
begin
  if lease_ms is null or lease_ms not between 100 and 300000 then
    raise exception 'a lease of % ms is not between 100 ms and 5 minutes', lease_ms using errcode = 'OL005';
  end if;
end $$;

-- Gives work back without a charge: the lease lapses now, the ids still running are marked as started.
create or replace function outlast._hand_back(token uuid, running uuid[]) returns void
language plpgsql volatile
set lock_timeout = '8s'
as $$
#variable_conflict use_column
declare
  l outlast._lease := outlast._take(_hand_back.token);
begin
  perform outlast._check_isolation();
  if l.token is null then return; end if;
  if l.room = 'parked' then
    update outlast._parked p set token = null
    where p.consumer = l.consumer and p.event_id = l.event_id and p.token = l.token;
    perform outlast._release(l.consumer, l.event_id);
    delete from outlast._lease x where x.token = l.token;
    return;
  end if;
  if l.room = 'delivered' then
    -- The broker delivers them again, as soon as they are released there.
    perform outlast._end_delivered(l, false);
    delete from outlast._lease x where x.token = l.token;
    return;
  end if;
  if l.room = 'job' then
    perform outlast._hand_back_jobs(l, running);
    return;
  end if;
  -- What was marked and does not run any more was not interrupted: nobody shall suspect it.
  delete from outlast._started s where s.token = l.token;
  if cardinality(running) > 0 then
    insert into outlast._started (token, seq, ids)
    values (l.token, 1, running);
  end if;
  -- At the beginning of time, so that a renewal which is on its way does not take it back.
  update outlast._lease x set expires_at = 'epoch' where x.token = l.token;
end $$;

-- Gives a claim back before its time, uncharged: what is neither sealed nor failed of it is due at once, for whoever claims
-- next. Waits for a seal that is open. Nothing happens if the claim is over, or somebody newer owns it. In a transaction of its
-- own.
create or replace function outlast.release(token uuid) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform outlast._hand_back(release.token, '{}');
end $$;
