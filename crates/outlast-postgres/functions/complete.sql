-- The seal: one completion per (event, consumer), in the transaction of the handler's own effects.

-- The event of a batch, if it is one of its events; else OL003. Also refuses what this consumer has parked: a handler
-- that was given up at its deadline cannot seal what the retry now owns.
-- The row is fetched by its id alone and judged afterwards: with the range of the batch in the same statement and no
-- statistics the planner walked the range, and to plan sixteen leaves anew for each event costs more than to ask one.
create or replace function outlast._in_batch(l outlast._lease, id uuid) returns outlast._found
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  b outlast._batch;
  e record;
  leaf smallint := outlast._log_slot(outlast._v7_time(id));
begin
  select * into strict b from outlast._batch x
  where x.consumer = (l).consumer and x.lane = (l).lane and x.seq = (l).seq;
  -- The id's own time names the leaf, unless a caller minted the id: then all leaves are asked.
  select x.slot, x.id, x.event_id, x.xid, x.type, x.key, x.tenant, x.source into e
  from outlast._event x where x.slot = leaf and x.event_id = _in_batch.id;
  if not found then
    select x.slot, x.id, x.event_id, x.xid, x.type, x.key, x.tenant, x.source into e
    from outlast._event x where x.event_id = _in_batch.id;
  end if;
  if e.id is null or e.id <= b.lo or e.id > b.hi
    or not outlast._sees((b.b).snap, (b.b).hi, (b.b).base, e.id, e.xid)
    or outlast._sees((b.a).snap, (b.a).hi, (b.a).base, e.id, e.xid)
    or not outlast._in_lane(b.lane, b.parts, b.tenants, b.without, e.key, e.id, e.tenant)
    or not outlast._takes(b.consumer, e.type, e.tenant, e.source, e.id, e.xid) then
    raise exception 'event % is not in the claim %', id, (l).token using errcode = 'OL003';
  end if;
  return row(e.slot, e.id, e.event_id, b.lane, 0, false)::outlast._found;
end $$;

-- The batch that a lease is about.
create or replace function outlast._batch_of(l outlast._lease) returns outlast._batch
language plpgsql stable
as $$
declare
  b outlast._batch;
begin
  select * into strict b from outlast._batch x
  where x.consumer = (l).consumer and x.lane = (l).lane and x.seq = (l).seq;
  return b;
end $$;

-- Completes one event, or one job. The last statement of the caller's transaction; raises, so that a COMMIT after it is impossible:
-- OL001 the lease is lost, OL002 it is sealed already, OL003 it is not in this claim. What waits behind a parked event is
-- let go by the end of its lease, not here: see key.sql.
create or replace function outlast.complete(token uuid, id uuid, outcome text default 'done', reason text default null)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  l outlast._lease;
  foreign_at timestamptz;                        -- of an id for which the ring has no place
begin
  if complete.outcome is null or complete.outcome not in ('done', 'skipped') then
    raise exception 'complete %: outcome % is not done or skipped', id, quote_nullable(complete.outcome) using errcode = 'OL005';
  end if;
  l := outlast._prove(complete.token);
  perform outlast._guard(l.expires_at);
  if l.room = 'batch' then
    perform outlast._in_batch(l, complete.id);
    if exists (select from outlast._parked p where p.consumer = l.consumer and p.event_id = complete.id) then
      raise exception 'event % is parked: a later try owns it', complete.id using errcode = 'OL003';
    end if;
  elsif l.room = 'parked' and l.event_id = complete.id then
    delete from outlast._parked p
    where p.consumer = l.consumer and p.event_id = complete.id and p.token = l.token
    returning case when p.foreign_id then p.emitted_at end into foreign_at;
    if not found then
      raise exception 'event % is not in the claim %', complete.id, complete.token using errcode = 'OL003';
    end if;
  elsif l.room = 'delivered' then
    perform outlast._seal_delivered(l, array[complete.id], false, left(complete.outcome, 1)::"char", outlast._clean(complete.reason));
    return;
  elsif l.room = 'job' then
    perform outlast._end_jobs(l, array[complete.id], left(complete.outcome, 1)::"char", complete.reason);
    return;
  else
    raise exception 'event % is not in the claim %', complete.id, complete.token using errcode = 'OL003';
  end if;
  if not outlast._write_seal(l.consumer, complete.id, foreign_at, left(complete.outcome, 1)::"char", complete.reason) then
    raise exception 'event % was already sealed', complete.id using errcode = 'OL002';
  end if;
end $$;

-- One completion, where its proof will be looked for; false: it is there already. `foreign_at`: when an event was emitted whose
-- id has no place in the ring.
create or replace function outlast._write_seal(
  consumer int, id uuid, foreign_at timestamptz, outcome "char", reason text) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  if foreign_at is not null then
    insert into outlast._foreign_event (consumer, event_id, at, emitted_at, outcome, reason)
    values (_write_seal.consumer, _write_seal.id, outlast.clock(), _write_seal.foreign_at, _write_seal.outcome, outlast._clean(_write_seal.reason))
    on conflict do nothing;
  else
    insert into outlast._processed_event (event_id, at, consumer, slot, outcome, reason)
    values (_write_seal.id, outlast.clock(), _write_seal.consumer, outlast._inbox_slot(_write_seal.id),
            _write_seal.outcome, outlast._clean(_write_seal.reason))
    on conflict do nothing;
  end if;
  return found;
end $$;

-- Completes many events of one claim: one statement, plain inserts (a conflict costs 1.4 times as much to tolerate, so
-- only a batch that was reclaimed, or a flush that is repeated, says so). Answers how many it wrote.
create or replace function outlast._seal(token uuid, ids uuid[], repeated boolean default false) returns int
language plpgsql volatile
as $$
declare
  l outlast._lease := outlast._prove(_seal.token);
  n int := outlast._write_seals(l, _seal.ids, _seal.repeated);
begin
  -- For the end of the batch; few rows are looked for sooner than noted.
  if l.room = 'batch' and not repeated and n >= 16 then
    insert into outlast._flush (token, events, ids_xor) values (_seal.token, n, outlast._ids_xor(_seal.ids));
  end if;
  return n;
end $$;

-- The rows themselves, under a lease that was proven.
create or replace function outlast._write_seals(l outlast._lease, ids uuid[], repeated boolean, alone boolean default false) returns int
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  claimed_at timestamptz;
  at timestamptz := outlast.clock();
  slots smallint[];
  n int;
begin
  if not alone then
    perform outlast._guard((l).expires_at);
  elsif current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if (l).room = 'parked' then
    perform outlast.complete((l).token, u) from unnest(ids) u;
    return cardinality(ids);
  end if;
  if (l).room = 'delivered' then
    return outlast._seal_delivered(l, ids, repeated);
  end if;
  select x.claimed_at into strict claimed_at from outlast._batch x
  where x.consumer = (l).consumer and x.lane = (l).lane and x.seq = (l).seq;
  -- A join, which hashes: in an outage there may be thousands of both.
  if exists (select from outlast._recently_parked((l).consumer, claimed_at) p join unnest(ids) u on u = p) then
    raise exception 'an event of the claim % is parked: a later try owns it', (l).token using errcode = 'OL003';
  end if;
  slots := outlast._inbox_slots(ids);
  if repeated then
    insert into outlast._processed_event (event_id, at, consumer, slot, outcome)
    select u, at, (l).consumer, outlast._inbox_slot(u), 'd' from unnest(ids) u
    on conflict do nothing;
  elsif cardinality(slots) = 1 then
    insert into outlast._processed_event (event_id, at, consumer, slot, outcome)
    select u, at, (l).consumer, slots[1], 'd' from unnest(ids) u;
  else
    insert into outlast._processed_event (event_id, at, consumer, slot, outcome)
    select u, at, (l).consumer, outlast._inbox_slot(u), 'd' from unnest(ids) u;
  end if;
  get diagnostics n = row_count;
  return n;
end $$;

-- Marks events of a reclaimed batch as about to start: one row a flush, committed before they start.
create or replace function outlast._start(token uuid, ids uuid[]) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  perform outlast._prove(_start.token);
  insert into outlast._started (token, seq, ids)
  select _start.token, coalesce(max(s.seq), 0) + 1, _start.ids from outlast._started s where s.token = _start.token;
end $$;

-- Did a transaction whose COMMIT was not answered seal this event? Null while it is still open. A plain look would say
-- "absent" while COMMIT is on the wire. A transaction id that is not below a new one died in a crash and may be handed
-- out again: absent. Never pg_xact_status: after an immediate stop it called rolled-back transactions committed.
create or replace function outlast._landed(consumer int, id uuid, xid xid8) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  if _landed.xid < pg_current_xact_id() and not pg_visible_in_snapshot(_landed.xid, pg_current_snapshot()) then
    return null;
  end if;
  return exists (select from outlast._sealed(_landed.consumer, array[_landed.id]));
end $$;
