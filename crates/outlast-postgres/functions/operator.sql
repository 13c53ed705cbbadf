-- What operators decide about parked events, each with a line of the audit in the same commit. Answers say what became of
-- the event and how many wait behind it; an event that is not parked, or is being tried right now, is left alone.

-- Does without an event: completes it as skipped, with a reason. If it led its key, the next one behind is let go; those
-- after that still wait for it. `outcome` is skipped, done (it was complete), running, or absent.
-- from: retry, behind, quarantined, waiting-version; to: skipped, done.
create or replace function outlast.skip(
  consumer text, id uuid, reason text, actor text default null, out outcome text, out behind int, out next uuid)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c int;
  l outlast._lease;
  p outlast._parked;
begin
  if coalesce(skip.reason, '') = '' then
    raise exception 'skip %: say why', id using errcode = 'OL005';
  end if;
  select x.id into c from outlast._consumer x where x.name = skip.consumer;
  if c is null then
    raise exception 'consumer % is not registered', quote_nullable(skip.consumer) using errcode = 'OL012';
  end if;
  behind := 0;
  -- A try that is running decides by itself; a lapsed one is ended like any other.
  select * into l from outlast._lease x where x.room = 'parked' and x.consumer = c and x.event_id = skip.id for update;
  if l.token is not null then
    if not outlast._lapsed(l.expires_at) or not pg_try_advisory_xact_lock(outlast._lease_lock(l.token)) then
      outcome := 'running';
      return;
    end if;
    delete from outlast._lease x where x.token = l.token;
  end if;
  -- The key before the event, as everybody does.
  perform from outlast._parked_key k
  where k.consumer = c and (k.tenant, k.key) = (
    select x.tenant, x.key from outlast._parked x where x.consumer = c and x.event_id = skip.id)
  for update;
  select * into p from outlast._parked x where x.consumer = c and x.event_id = skip.id for update;
  if p.event_id is null then
    perform outlast._release(c, skip.id);
    outcome := 'absent';
    return;
  end if;
  if l.token is null and exists (select from outlast._lease x where x.room = 'parked' and x.consumer = c and x.event_id = skip.id) then
    outcome := 'running';
    return;
  end if;
  outcome := case when outlast._write_seal(c, p.event_id, case when p.foreign_id then p.emitted_at end, 's', skip.reason)
             then 'skipped' else 'done' end;
  perform outlast._unpark(c, p.event_id);
  if p.key is not null then
    select k.behind, k.leader into behind, next from outlast._parked_key k
    where k.consumer = c and k.tenant = p.tenant and k.key = p.key;
    behind := coalesce(behind, 0);
  end if;
  perform outlast._audited('parked.skipped', skip.consumer || ' ' || p.event_id, jsonb_build_object(
    'was', p.state, 'class', p.class, 'reason', outlast._clean(skip.reason), 'outcome', outcome, 'type', p.type,
    'tenant', p.tenant, 'key', p.key, 'next', next, 'behind', behind), skip.actor);
end $$;

-- Gives a quarantined event another full budget of tries, at once. It runs at the head of its key; what is behind it goes
-- on waiting. `outcome` is retry, or what it is instead: retry already, behind, waiting-version, running, absent.
-- from: quarantined; to: retry.
create or replace function outlast.retry(
  consumer text, id uuid, actor text default null, out outcome text, out behind int, out changed boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c int;
  p outlast._parked;
  at timestamptz := outlast.clock();
begin
  select x.id into c from outlast._consumer x where x.name = retry.consumer;
  if c is null then
    raise exception 'consumer % is not registered', quote_nullable(retry.consumer) using errcode = 'OL012';
  end if;
  select * into p from outlast._parked x where x.consumer = c and x.event_id = retry.id for update;
  select coalesce(max(k.behind), 0) into behind from outlast._parked_key k where k.consumer = c and k.leader = retry.id;
  changed := coalesce(p.state = 'quarantined', false);
  if not changed then
    outcome := case when p.event_id is null then 'absent' when p.token is not null then 'running' else p.state end;
    return;
  end if;
  -- The runner looks in the inbox first, so what was completed meanwhile is not run again.
  update outlast._parked x set state = 'retry', failures = 0, crashes = 0, next_at = at, changed_at = at
  where x.consumer = c and x.event_id = p.event_id;
  outcome := 'retry';
  perform outlast._audited('parked.retried', retry.consumer || ' ' || p.event_id, jsonb_build_object(
    'was', p.state, 'class', p.class, 'reason', p.reason, 'failures', p.failures, 'type', p.type, 'tenant', p.tenant,
    'key', p.key, 'behind', behind), retry.actor);
end $$;

-- A process stops starting events of a consumer: what it tries fails, one after the other.
create or replace function outlast._outage(consumer int, process uuid, reason text) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
begin
  delete from outlast._outage o where o.consumer = _outage.consumer and o.seen_at < at - interval '1 hour';
  insert into outlast._outage as o (consumer, process, since, seen_at, reason)
  values (_outage.consumer, _outage.process, at, at, outlast._clean(_outage.reason))
  on conflict (consumer, process) do update
    set seen_at = excluded.seen_at, probes = o.probes + 1, reason = coalesce(excluded.reason, o.reason);
end $$;

-- It is over, for this process.
create or replace function outlast._outage_over(consumer int, process uuid) returns void
language sql volatile
as $$ delete from outlast._outage o where o.consumer = _outage_over.consumer and o.process = _outage_over.process $$;
