-- The life of a job between its acceptance and its end: claimed under a lease, completed or failed under it, given back.

-- Who decides about one job while something else may: whoever fails it, gives it back, or is a person. Claims and
-- completions do not take it; they own a row that others find gone. A request to go that both have missed is met by the next
-- claim.
create or replace function outlast._job_lock(id uuid) returns bigint
language sql immutable parallel safe
as $$ select uuid_hash_extended(id, outlast._lock_room(7315)) $$;

-- Under which name it is claimed: a job, a command and an entity may be called alike.
create or replace function outlast._queue(kind outlast._job_kind, name text) returns text
language sql immutable parallel safe
as $$ select case kind when 'c' then 'command:' || name when 'e' then 'entity:' || name else name end $$;

-- From where on to look for what is due; -infinity: from the beginning, once a minute. Whoever commits a job more than a minute
-- after its time has it found by that.
-- PL/pgSQL, as all here that is called again and again: an SQL function that is not inlined is parsed and planned by each call.
create or replace function outlast._later_since(at timestamptz) returns timestamptz
language plpgsql stable
as $$
begin
  return coalesce((select case when l.at between _later_since.at - interval '1 minute' and _later_since.at then l.at - interval '1 minute' end
                   from outlast._job_look l order by l.at desc limit 1), '-infinity');
end $$;

-- Times have come: what was to run later may run now. Answers how many, and when the next is due.
create or replace function outlast._promote(n int, out moved int, out next_ms bigint)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set enable_hashjoin = off
as $$
#variable_conflict use_column
declare
  moment timestamptz := outlast.clock();
  since timestamptz := outlast._later_since(moment);
begin
  with due as materialized (
    select x.ctid, x.id from outlast._job_later x
    where not x.alone and x.due_at >= since and x.due_at <= moment order by x.due_at limit n for update skip locked
  ), gone as (
    delete from outlast._job_later x where x.ctid = any (array(select d.ctid from due d)) returning x.id, x.due_at
  )
  insert into outlast._job_ready (seq, priority, id, name, account, tenant)
  select nextval('outlast._event_id'), j.priority, j.id, j.queue, j.account, j.tenant
  from (select x.priority, x.id, outlast._queue(x.kind, x.name) as queue, x.account, x.tenant
        from gone g join outlast._job x on x.id = g.id order by g.due_at) j;
  get diagnostics moved = row_count;
  next_ms := outlast._next_due(since);
  if since = '-infinity' and moved < n and (moved > 0 or next_ms is not null) then
    insert into outlast._job_look (at) values (moment) on conflict do nothing;
    delete from outlast._job_look l where l.ctid = any (array(
      select x.ctid from outlast._job_look x where x.at <> moment for update skip locked));
  end if;
end $$;

create or replace function outlast._next_due(since timestamptz) returns bigint
language plpgsql volatile
as $$
begin
  return (select (extract(epoch from greatest(x.due_at - outlast.clock(), interval '0')) * 1000)::bigint
          from outlast._job_later x where not x.alone and x.due_at >= since order by x.due_at limit 1);
end $$;

-- What leaves is durable before, and the process can find it again.
create or replace function outlast._durable(process uuid, seq bigint, nonce uuid, acked bigint) returns void
language plpgsql volatile
as $$
begin
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if process is not null then
    perform outlast._remember(process, seq, nonce, acked);
  end if;
end $$;

-- Makes a job ready, at the end of its group or where it stood.
create or replace function outlast._ready(id uuid, seq bigint default null) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  insert into outlast._job_ready (seq, priority, id, name, account, tenant)
  select coalesce(_ready.seq, nextval('outlast._event_id')), j.priority, j.id, outlast._queue(j.kind, j.name), j.account, j.tenant
  from outlast._job j where j.id = _ready.id;
end $$;

create or replace function outlast._put_off(id uuid, wait interval, alone boolean default false) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  insert into outlast._job_later (id, due_at, name, alone)
  select j.id, outlast.clock() + _put_off.wait, outlast._queue(j.kind, j.name), _put_off.alone from outlast._job j where j.id = _put_off.id;
end $$;

-- Ends jobs of one claim, which others cannot do any more: their row in the claim was ours. Raises unless all were.
-- from: claimed; to: ended; of entities converged, ready.
create or replace function outlast._end_jobs(l outlast._lease, ids uuid[], outcome "char", reason text) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  gone int;
  at timestamptz := outlast.clock();
  txt text := outlast._clean(reason);
  kind "char" := (select j.kind from outlast._job j where j.id = ids[1]);
begin
  -- A claim is of one kind.
  if kind = 'c' then
    raise exception 'a command of the claim % has no completion: record what the provider has answered', (l).token using errcode = 'OL005';
  end if;
  -- By its id: with the token as a bound of its index each completion would read all of the claim.
  delete from outlast._job_claimed c where c.id = any (ids) and (c.token = (l).token) is true;
  get diagnostics gone = row_count;
  if gone <> cardinality(ids) then
    if exists (select from outlast._job_end e where e.id = any (ids))
      or kind = 'e' and exists (select from outlast._entity e where e.id = any (ids) and e.converged_by = (l).token) then
      raise exception 'a job of the claim % has ended already', (l).token using errcode = 'OL002';
    end if;
    raise exception '% of % jobs are not in the claim %', cardinality(ids) - gone, cardinality(ids), (l).token using errcode = 'OL003';
  end if;
  if kind = 'e' then
    perform outlast._converged((l).token, ids);
    return;
  end if;
  insert into outlast._job_end (id, at, state, reason) select u, at, outcome, txt from unnest(ids) u;
end $$;

-- The same for a worker, which completes many at once. `repeated`: the answer to the same call was perhaps lost, so what has
-- ended stays as it is.
create or replace function outlast._complete_jobs(token uuid, ids uuid[], repeated boolean default false) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
  l outlast._lease := outlast._prove(_complete_jobs.token);
begin
  perform outlast._end_jobs(l, case when repeated then outlast._not_ended(l.token, ids) else ids end, 'd', null);
end $$;

create or replace function outlast._not_ended(token uuid, ids uuid[]) returns uuid[]
language plpgsql stable
set enable_seqscan = off
as $$
begin
  return array(select u from unnest(ids) u
               where not exists (select from outlast._job_end e where e.id = u)
                 and not exists (select from outlast._entity e where e.id = u and e.converged_by = _not_ended.token));
end $$;

-- The last completions of a claim and its end, in one commit. The locks of an end first: two that each hold the shared lock of
-- a completion and want the exclusive one never end. Answers how many were left and are given back.
create or replace function outlast._complete_and_finish_jobs(token uuid, ids uuid[], repeated boolean default false) returns int
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set lock_timeout = '8s'
as $$
declare
  l outlast._lease := outlast._take(_complete_and_finish_jobs.token);
begin
  if l.token is null then perform outlast._prove(token); end if;         -- which says that it is lost
  perform outlast._end_jobs(l, case when repeated then outlast._not_ended(l.token, ids) else ids end, 'd', null);
  return outlast._give_back(l, false);
end $$;

-- Whether the transaction `xid`, whose COMMIT was not answered, has ended this job; null while it is open.
create or replace function outlast._job_landed(id uuid, xid xid8) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  if _job_landed.xid < pg_current_xact_id() and not pg_visible_in_snapshot(_job_landed.xid, pg_current_snapshot()) then
    return null;
  end if;
  return exists (select from outlast._job_end e where e.id = _job_landed.id);
end $$;

-- Written, and committed, before these start: their worker may not survive them. Raises unless all are in the claim: what is
-- not any more must not start.
create or replace function outlast._start_jobs(token uuid, ids uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  marked int;
begin
  perform outlast._prove(_start_jobs.token);
  update outlast._job_claimed c set started = true where (c.token = _start_jobs.token) is true and c.id = any (ids);
  get diagnostics marked = row_count;
  if marked <> cardinality(ids) then
    raise exception '% of % jobs are not in the claim %', cardinality(ids) - marked, cardinality(ids), _start_jobs.token using errcode = 'OL003';
  end if;
end $$;

-- What becomes of a job whose try has failed: another try later, or a person's decision. Whoever asked it to go while it ran
-- has his way now. `attempts`: how many there are, where the job says nothing itself. `first_ms` and `most_ms`: the longest
-- pause after the first failure, and the longest at all.
-- from: claimed; to: later, incident, ended (cancelled).
create or replace function outlast._fail_job(
  l outlast._lease, id uuid, class text, txt text, after_ms bigint, charged boolean, attempts int default null,
  first_ms bigint default null, most_ms bigint default null)
returns text
language plpgsql volatile
set lock_timeout = '8s'                          -- somebody may be deciding about it in a transaction of his own
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  j outlast._job;
  s outlast._job_state;
  wait interval := make_interval(secs => greatest(least(coalesce(after_ms, 0), 604800000), 0) / 1000.0);
begin
  if exists (select from outlast._command m where m.id = _fail_job.id) then
    return outlast._fail_command(l, id, class, txt, after_ms, charged);
  end if;
  perform pg_advisory_xact_lock(outlast._job_lock(id));
  delete from outlast._job_claimed c where c.id = _fail_job.id and (c.token = (l).token) is true;
  if not found then
    raise exception 'job % is not in the claim %', id, (l).token using errcode = 'OL003';
  end if;
  select * into strict j from outlast._job x where x.id = _fail_job.id;
  insert into outlast._job_state as x (id, failures, class, reason, signature, changed_at)
  values (_fail_job.id, case when charged then 1 else 0 end, _fail_job.class, txt, outlast._signature(j.name, _fail_job.class, txt), outlast.clock())
  on conflict (id) do update set failures = x.failures + excluded.failures, class = excluded.class, reason = excluded.reason,
    signature = excluded.signature, changed_at = excluded.changed_at
  returning * into s;
  if s.cancel is not null then
    insert into outlast._job_end (id, at, state, reason) values (id, outlast.clock(), 'x', s.cancel);
    return 'cancelled';
  end if;
  if class = 'permanent' or s.failures >= coalesce(j.attempts, _fail_job.attempts, 8) then
    update outlast._job_state x set incident_at = outlast.clock() where x.id = _fail_job.id;
    return 'quarantined';
  end if;
  -- A told waiting time may only lengthen ours, up to an hour for a throttled try and a week for any other.
  perform outlast._put_off(id,
    least(greatest(wait, case when charged then outlast._backoff(s.failures, first_ms, most_ms) else interval '1 second' end),
          case when charged then interval '7 days' else interval '1 hour' end));
  return 'retry';
end $$;

-- Gives back what is left of a claim, under its lease taken exclusively, and ends the lease. `lost`: its worker was. Then
-- what it had marked as started is charged and waits to be run alone; the third such death is put before a person. About one
-- that an open transaction is deciding (a cancellation in an application's own) is decided later: it goes under another lease,
-- which nobody knows and which has lapsed already, so that nobody waits for that transaction.
-- from: claimed; to: ready, later (alone), incident, ended (cancelled).
create or replace function outlast._give_back(l outlast._lease, lost boolean) returns int
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  c outlast._job_claimed;
  s outlast._job_state;
  undecided uuid[] := '{}';
  fresh uuid;
  n int := 0;
begin
  for c in select * from outlast._job_claimed x where x.token = (l).token order by x.id loop
    if not pg_try_advisory_xact_lock(outlast._job_lock(c.id)) then
      undecided := undecided || c.id;
      continue;
    end if;
    delete from outlast._job_claimed x where x.id = c.id and x.token = (l).token;
    n := n + 1;
    s := null;
    if exists (select from outlast._command m where m.id = c.id) then
      perform outlast._lose_command(c.id, c.started, lost);
      continue;
    end if;
    if lost then
      insert into outlast._job_state as x (id, lapses, crashes, failures, changed_at)
      values (c.id, 1, case when c.started then 1 else 0 end, case when c.started then 1 else 0 end, outlast.clock())
      on conflict (id) do update set lapses = x.lapses + 1, crashes = x.crashes + excluded.crashes,
        failures = x.failures + excluded.failures, changed_at = excluded.changed_at
      returning * into s;
    else
      select * into s from outlast._job_state x where x.id = c.id;
    end if;
    if s.cancel is not null then
      insert into outlast._job_end (id, at, state, reason) values (c.id, outlast.clock(), 'x', s.cancel);
    elsif s.crashes >= 3 then
      update outlast._job_state x
      set incident_at = outlast.clock(), class = 'crashed', reason = format('the worker was lost %s times while this job ran', s.crashes)
      where x.id = c.id;
    elsif s.crashes > 0 then
      perform outlast._put_off(c.id, interval '0', true);
    else
      perform outlast._ready(c.id);
    end if;
  end loop;
  delete from outlast._lease x where x.token = (l).token;
  -- Of a claim that is nothing but a key of exclusion.
  if exists (select from outlast._exclusive x where x.id = (l).token) then
    perform outlast._let_go((l).token);
  end if;
  if cardinality(undecided) > 0 then
    fresh := gen_random_uuid();
    insert into outlast._lease (token, room, process, holder, expires_at) values (fresh, 'job', (l).process, (l).holder, 'epoch');
    update outlast._job_claimed x set token = fresh, started = x.started and lost where x.token = (l).token;
  end if;
  return n;
end $$;

-- Ends a claim. What is left in it nobody has completed or failed: it is given back. Answers how many that were.
create or replace function outlast._finish_jobs(token uuid) returns int
language plpgsql volatile
set lock_timeout = '8s'                          -- an open completion; below the client's own patience
as $$
declare
  l outlast._lease := outlast._take(_finish_jobs.token);
begin
  if l.token is null or l.room <> 'job' then return 0; end if;
  return outlast._give_back(l, false);
end $$;

-- Gives back what of a claim has not started, while the rest of it goes on: a process that stops keeps nothing from others.
-- These go under a lease that nobody else has ever known.
create or replace function outlast._let_go_jobs(token uuid, ids uuid[]) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  l outlast._lease := outlast._prove(_let_go_jobs.token);
begin
  l.token := gen_random_uuid();
  update outlast._job_claimed x set token = l.token where x.token = _let_go_jobs.token and x.id = any (ids);
  if found then
    perform outlast._give_back(l, false);
  end if;
end $$;

-- Gives work back while some of it still runs, which its process does not wait for: the rest goes back uncharged, these are
-- marked as started and their lease lapses now.
create or replace function outlast._hand_back_jobs(l outlast._lease, running uuid[]) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  fresh uuid := gen_random_uuid();
begin
  update outlast._job_claimed x set token = fresh, started = true where x.token = (l).token and x.id = any (running);
  if found then
    insert into outlast._lease (token, room, process, holder, expires_at) values (fresh, 'job', (l).process, (l).holder, 'epoch');
  end if;
  perform outlast._give_back(l, false);
end $$;

-- Takes lapsed claims from whoever had them. Neither lock waits: a completion that is going on keeps its claim.
create or replace function outlast._reclaim_jobs(most int) returns int
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  t uuid;
  l outlast._lease;
  n int := 0;
begin
  perform outlast._check_isolation();
  perform outlast._check_running();
  for t in select x.token from outlast._lease x where x.room = 'job' and outlast._lapsed(x.expires_at) order by x.expires_at limit most loop
    continue when not pg_try_advisory_xact_lock(outlast._lease_lock(t));
    select * into l from outlast._lease x where x.token = t and outlast._lapsed(x.expires_at) for update skip locked;
    continue when not found;
    n := n + outlast._give_back(l, true);
  end loop;
  return n;
end $$;

-- What waits for a process with these names: somebody's claim has lapsed; something is ready; when the next is due.
create or replace function outlast._due_jobs(names text[], out lapsed boolean, out ready boolean, out next_ms bigint)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  lapsed := exists (select from outlast._lease x where x.room = 'job' and outlast._lapsed(x.expires_at));
  next_ms := outlast._next_due(outlast._later_since(outlast.clock()));
  ready := exists (
    select from unnest(names) u (name)
    where not exists (select from outlast._job_pause p where p.name = u.name)
      and (exists (select from outlast._job_ready r where r.name = u.name)
           or u.name like 'entity:%' and outlast._has_marks()
           or exists (select from outlast._job_later r where r.alone and r.name = u.name and r.due_at <= outlast.clock())));
end $$;

-- Removes jobs that ended longer ago than retention.job, and keys that answer no more. Answers how many rows.
create or replace function outlast._forget_jobs(n int) returns int
language plpgsql volatile
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  old uuid[];
  -- A volatile function is no bound of an index.
  at timestamptz := outlast.clock();
  week_ago timestamptz := at - interval '7 days';
  kept timestamptz := at - outlast._setting_interval('retention.job');
  gone int;
begin
  if exists (select from outlast._check_settings()) then return 0; end if;
  old := array(select x.id from outlast._job_end x where x.at < kept order by x.at limit n);
  delete from outlast._job x where x.id = any (old);
  delete from outlast._job_state x where x.id = any (old);
  delete from outlast._command x where x.id = any (old);
  delete from outlast._evidence x where x.command = any (old);
  delete from outlast._contradiction x where x.command = any (old);
  delete from outlast._job_end x where x.id = any (old);
  delete from outlast._job_key x where x.ctid = any (array(
    select y.ctid from outlast._job_key y
    -- Long enough after its life that the answer has been "expired" for a while, and no unfinished job loses it.
    where y.lives_until < week_ago
      and (not exists (select from outlast._job j where j.id = y.job) or exists (select from outlast._job_end e where e.id = y.job))
    order by y.lives_until limit n));
  get diagnostics gone = row_count;
  return cardinality(old) + gone + outlast._forget_entities(n);
end $$;
