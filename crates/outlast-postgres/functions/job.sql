-- The life of a job between its acceptance and its end: claimed under a lease, completed or failed under it, given back.

-- Who decides about one job while something else may: whoever fails it, gives it back, or is a person. Claims and
-- completions do not take it; they own a row that others find gone.
create or replace function outlast._job_lock(id uuid) returns bigint
language sql immutable parallel safe
as $$ select uuid_hash_extended(id, outlast._lock_room(7315)) $$;

-- Under which name it is claimed: a job and a command may be called alike.
create or replace function outlast._queue(kind outlast._job_kind, name text) returns text
language sql immutable parallel safe
as $$ select case kind when 'c' then 'command:' || name else name end $$;

-- Times have come: what was to run later may run now. Answers how many, and when the next is due.
create or replace function outlast._promote(n int, out moved int, out next_ms bigint)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
begin
  with due as materialized (
    select x.ctid, x.id from outlast._job_later x
    where not x.alone and x.due_at <= at order by x.due_at limit n for update skip locked
  ), gone as (
    delete from outlast._job_later x where x.ctid = any (array(select d.ctid from due d)) returning x.id, x.due_at
  )
  insert into outlast._job_ready (seq, priority, id, name, account, tenant)
  select nextval('outlast._event_id'), j.priority, j.id, outlast._queue(j.kind, j.name), j.account, j.tenant
  from (select g.id from gone g order by g.due_at) g join outlast._job j on j.id = g.id;
  get diagnostics moved = row_count;
  next_ms := (select (extract(epoch from greatest(x.due_at - outlast.clock(), interval '0')) * 1000)::bigint
              from outlast._job_later x where not x.alone order by x.due_at limit 1);
end $$;

-- The groups of a name that have something ready: one an account and tenant and priority, in the order of the index, from
-- the one after `after` on. `floors` says up to where groups were taken by this process a while ago: nothing below is looked
-- at, which under an old snapshot would be all that was ever taken. What is between known groups is looked for by steps.
create or replace function outlast._job_groups(name text, after_account text, after_tenant text, floors jsonb, most int)
returns table (account text, tenant text, priority smallint, above bigint)
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  known record;
  a text := coalesce(_job_groups.after_account, '');
  t text := coalesce(_job_groups.after_tenant, '');
  p smallint := case when _job_groups.after_account is null then -32768 else 32767 end;
  n int := 0;
  f record;
  skip boolean := false;                         -- all of this account
begin
  for known in
    select k.account, k.tenant, k.priority, k.above
    from jsonb_to_recordset(floors) k (account text, tenant text, priority smallint, above bigint)
    where (k.account, k.tenant, k.priority) > (a, t, p)
    union all select null, null, null, null
    order by 1 nulls last, 2, 3
  loop
    loop
      exit when n >= most;
      if skip then
        select x.account, x.tenant, x.priority into f from outlast._job_ready x
        where x.name = _job_groups.name and x.account > a
        order by x.account, x.tenant, x.priority limit 1;
      else
        select x.account, x.tenant, x.priority into f from outlast._job_ready x
        where x.name = _job_groups.name and (x.account, x.tenant, x.priority) > (a, t, p)
        order by x.account, x.tenant, x.priority limit 1;
      end if;
      exit when not found or known.account is not null and (f.account, f.tenant, f.priority) >= (known.account, known.tenant, known.priority);
      a := f.account; t := f.tenant; p := f.priority;
      skip := outlast._account_paused(a);
      continue when skip;
      account := f.account; tenant := f.tenant; priority := f.priority; above := 0;
      n := n + 1;
      return next;
    end loop;
    exit when n >= most or known.account is null;
    a := known.account; t := known.tenant; p := known.priority;
    skip := outlast._account_paused(a);
    continue when skip;
    if exists (select from outlast._job_ready x
               where x.name = _job_groups.name and x.account = a and x.tenant = t and x.priority = p and x.seq > known.above) then
      account := a; tenant := t; priority := p; above := known.above;
      n := n + 1;
      return next;
    end if;
  end loop;
end $$;

-- One that its worker may not have survived, by itself, if this process has no other such in work: else the innocent would
-- be charged with it. Under a lease of its own. `versions`: the newest of each name that this process reads.
create or replace function outlast._claim_alone(names text[], versions int[], lease_ms int, process uuid, holder text) returns setof outlast._taken_job
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
  token uuid := gen_random_uuid();
  one uuid;
begin
  if process is not null and exists (
    select from outlast._lease l
    join outlast._job_claimed c on c.token = l.token
    join outlast._job_state s on s.id = c.id
    where l.room = 'job' and l.process = _claim_alone.process and s.crashes > 0) then
    return;
  end if;
  for i in 1..coalesce(cardinality(names), 0) loop
    select x.id into one from outlast._job_later x join outlast._job j on j.id = x.id
    where x.alone and x.name = names[i] and x.due_at <= at and j.schema_version <= versions[i]
    order by x.due_at limit 1 for update of x skip locked;
    continue when not found;
    delete from outlast._job_later x where x.id = one;
    insert into outlast._lease (token, room, process, holder, expires_at)
    values (token, 'job', _claim_alone.process, _claim_alone.holder, at + make_interval(secs => lease_ms / 1000.0));
    insert into outlast._job_claimed (id, token, started) values (one, token, true);
    return query select t.* from outlast._taken(array[token], array[one], array[0::bigint]) t;
    return;
  end loop;
end $$;

-- What was taken, whole, under which lease and from where each stood.
create or replace function outlast._taken(tokens uuid[], ids uuid[], seqs bigint[]) returns setof outlast._taken_job
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
  return query
    select u.token, j.id, j.kind::"char", j.name, j.tenant, j.key, j.account, j.priority, u.seq, j.schema_version::int,
           1 + coalesce(s.failures, 0), coalesce(s.lapses, 0), j.accepted_at, j.correlation_id, j.causation_id, j.source, j.actor,
           j.traceparent, j.content_type, j.codec_key, j.payload, m.next, m.state, m.version, m.provider_key, m.reference
    from unnest(_taken.tokens, _taken.ids, _taken.seqs) with ordinality u (token, id, seq, n)
    join outlast._job j on j.id = u.id
    left join outlast._job_state s on s.id = u.id
    left join outlast._command m on m.id = u.id
    order by u.n;
end $$;

-- Takes some of one group, in order.
create or replace function outlast._take_of(name text, account text, tenant text, priority smallint, above bigint, n int,
  inout ids uuid[], inout seqs bigint[])
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  got record;
begin
  with front as materialized (
    select x.ctid, x.id, x.seq from outlast._job_ready x
    where x.name = _take_of.name and x.account = _take_of.account and x.tenant = _take_of.tenant and x.priority = _take_of.priority
      and x.seq > _take_of.above
    order by x.seq limit n for update skip locked
  ), gone as (
    delete from outlast._job_ready x where x.ctid = any (array(select f.ctid from front f)) returning x.id, x.seq
  )
  select array_agg(g.id order by g.seq) as ids, array_agg(g.seq order by g.seq) as seqs into got from gone g;
  ids := ids || got.ids;
  seqs := seqs || got.seqs;
end $$;

-- Claims what may run now of these names, at most `rooms` of each, each name under a lease of its own; or one that is to run
-- alone, and nothing beside it. Of a name every account and tenant with work gets as much as any other; what one leaves goes to the rest. `after` says per
-- name behind which group to begin, so that with more groups than room each has its turn, and `floors` what not to look at
-- again (see _job_groups). A newer version than the process reads is put off, uncharged. Durable before it leaves.
-- from: ready, later (alone); to: claimed.
create or replace function outlast._claim_jobs(
  names text[], versions int[], rooms int[], max_bytes bigint, lease_ms int,
  process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null,
  holder text default null, after jsonb default '{}', floors jsonb default '{}')
returns setof outlast._taken_job
language plpgsql volatile
set jit = off
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
  fresh uuid;
  which text;
  room int;
  ids uuid[];
  seqs bigint[];
  tokens uuid[] := '{}';
  all_ids uuid[] := '{}';
  all_seqs bigint[] := '{}';
  g record;
  before int;
  share int;
  groups jsonb;
  late uuid[];
  allowed int;
  taken_of jsonb := '{}';                        -- accounts that are counted: how many of each
begin
  perform outlast._check_isolation();
  perform outlast._check_running();
  perform outlast._check_lease_ms(lease_ms);
  if coalesce(cardinality(names), 0) = 0 then return; end if;
  return query
    select a.* from (
      select array_agg(u.name) as names, array_agg(u.version) as versions from unnest(names, versions, rooms) u (name, version, room)
      where u.room > 0 and not exists (select from outlast._job_pause p where p.name = u.name)) u
    cross join lateral outlast._claim_alone(u.names, u.versions, lease_ms, process, holder) a;
  if found then
    perform outlast._durable(process, seq, nonce, acked);
    return;
  end if;

  for i in 1..cardinality(names) loop
    which := names[i];
    room := rooms[i];
    continue when room < 1 or exists (select from outlast._job_pause p where p.name = which);
    groups := (
      select coalesce(jsonb_agg(to_jsonb(x) order by x.turn, x.n), '[]')
      from (
        select 1 as turn, y.* from outlast._job_groups(which, after -> which ->> 0, after -> which ->> 1,
          coalesce(floors -> which, '[]'), room) with ordinality y (account, tenant, priority, above, n)) x);
    if after ? which and jsonb_array_length(groups) < room then
      -- Round again, up to where it began.
      groups := groups || (
        select coalesce(jsonb_agg(to_jsonb(y) order by y.n), '[]')
        from outlast._job_groups(which, null, null, coalesce(floors -> which, '[]'), room - jsonb_array_length(groups))
          with ordinality y (account, tenant, priority, above, n)
        where (y.account, y.tenant) <= (after -> which ->> 0, after -> which ->> 1));
    end if;
    continue when jsonb_array_length(groups) = 0;
    share := greatest(1, room / (select count(distinct (x.account, x.tenant)) from jsonb_to_recordset(groups) x (account text, tenant text)));
    ids := '{}';
    seqs := '{}';
    -- First what is everybody's due, then what is left.
    for turn in 1..2 loop
      for g in
        select x.account, x.tenant, x.priority, x.above, x.n
        from rows from (jsonb_to_recordset(groups) as (account text, tenant text, priority smallint, above bigint))
          with ordinality x (account, tenant, priority, above, n)
        order by x.n
      loop
        exit when cardinality(ids) >= room;
        before := cardinality(ids);
        allowed := null;
        if outlast._account_counts(g.account) then
          continue when not pg_try_advisory_xact_lock(outlast._account_lock(g.account));
          allowed := outlast._account_room(g.account) - coalesce((taken_of ->> g.account)::int, 0);
          continue when allowed < 1;
        end if;
        select t.ids, t.seqs into ids, seqs from outlast._take_of(which, g.account, g.tenant, g.priority, g.above,
          least(case turn when 1 then least(share, room - before) else room - before end, allowed), ids, seqs) t;
        if allowed is not null and cardinality(ids) > before then
          taken_of := taken_of || jsonb_build_object(g.account, coalesce((taken_of ->> g.account)::int, 0) + cardinality(ids) - before);
        end if;
      end loop;
      exit when cardinality(ids) >= room;
    end loop;
    -- Not more than may be in memory at once, but one of it in any case.
    if cardinality(ids) > 1 then
      late := array(
        select u.id from (
          select x.id, x.n, sum(octet_length(j.payload)) over (order by x.n) as bytes
          from unnest(ids) with ordinality x (id, n) join outlast._job j on j.id = x.id) u
        where u.bytes > max_bytes and u.n > 1);
      perform outlast._ready(u.id, (select v.seq from unnest(ids, seqs) v (id, seq) where v.id = u.id)) from unnest(late) u (id);
      select coalesce(array_agg(u.id order by u.n), '{}'), coalesce(array_agg(u.seq order by u.n), '{}') into ids, seqs
      from unnest(ids, seqs) with ordinality u (id, seq, n) where u.id <> all (late);
    end if;
    if which like 'command:%' then
      select x.ids, x.seqs into ids, seqs from outlast._exclude(ids, seqs) x;
    end if;
    late := array(select j.id from unnest(ids) u (id) join outlast._job j on j.id = u.id where j.schema_version > versions[i]);
    if cardinality(late) > 0 then
      perform outlast._put_off(u.id, interval '10 seconds') from unnest(late) u (id);
      insert into outlast._job_state as s (id, class, reason, changed_at)
      select u.id, 'waiting-version', 'no worker with a handler for this version', at from unnest(late) u (id)
      on conflict (id) do update set class = excluded.class, reason = excluded.reason
      where s.class is distinct from excluded.class;
      select coalesce(array_agg(u.id order by u.n), '{}'), coalesce(array_agg(u.seq order by u.n), '{}') into ids, seqs
      from unnest(ids, seqs) with ordinality u (id, seq, n) where u.id <> all (late);
    end if;
    continue when cardinality(ids) = 0;
    fresh := gen_random_uuid();
    insert into outlast._lease (token, room, process, holder, expires_at)
    values (fresh, 'job', _claim_jobs.process, _claim_jobs.holder, at + make_interval(secs => lease_ms / 1000.0));
    insert into outlast._job_claimed (id, token, account) select j.id, fresh, j.account from outlast._job j where j.id = any (ids);
    if taken_of <> '{}' then
      perform outlast._account_took(j.account, count(*)::int)
      from outlast._job j where j.id = any (ids) and taken_of ? j.account group by j.account;
      taken_of := '{}';
    end if;
    tokens := tokens || array_fill(fresh, array[cardinality(ids)]);
    all_ids := all_ids || ids;
    all_seqs := all_seqs || seqs;
  end loop;
  if cardinality(all_ids) = 0 then return; end if;
  perform outlast._durable(process, seq, nonce, acked);
  return query select t.* from outlast._taken(tokens, all_ids, all_seqs) t;
end $$;

-- The claim of a runner in another language, who marks nothing: what somebody was lost with counts as started.
create or replace function outlast._claim_job(name text, n int, lease_ms int, holder text) returns setof outlast._taken_job
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  t outlast._taken_job;
begin
  perform outlast._reclaim_jobs(1);
  perform outlast._promote(1000);
  for t in select x.* from outlast._claim_jobs(array[_claim_job.name], array[32767], array[n], 4194304, lease_ms, holder => holder) x loop
    if t.lapses > 0 then
      update outlast._job_claimed c set started = true where c.id = t.id and not c.started;
    end if;
    return next t;
  end loop;
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
language sql volatile
as $$
  insert into outlast._job_ready (seq, priority, id, name, account, tenant)
  select coalesce(_ready.seq, nextval('outlast._event_id')), j.priority, j.id, outlast._queue(j.kind, j.name), j.account, j.tenant
  from outlast._job j where j.id = _ready.id
$$;

create or replace function outlast._put_off(id uuid, wait interval, alone boolean default false) returns void
language sql volatile
as $$
  insert into outlast._job_later (id, due_at, name, alone)
  select j.id, outlast.clock() + _put_off.wait, outlast._queue(j.kind, j.name), _put_off.alone from outlast._job j where j.id = _put_off.id
$$;

-- Ends jobs of one claim, which others cannot do any more: their row in the claim was ours. Raises unless all were.
-- from: claimed; to: ended.
create or replace function outlast._end_jobs(l outlast._lease, ids uuid[], outcome "char", reason text) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  gone int;
begin
  if exists (select from outlast._command m where m.id = any (ids)) then
    raise exception 'a command of the claim % has no completion: record what the provider has answered', (l).token using errcode = 'OL005';
  end if;
  delete from outlast._job_claimed c where c.id = any (ids) and c.token = (l).token;
  get diagnostics gone = row_count;
  if gone <> cardinality(ids) then
    if exists (select from outlast._job_end e where e.id = any (ids)) then
      raise exception 'a job of the claim % has ended already', (l).token using errcode = 'OL002';
    end if;
    raise exception '% of % jobs are not in the claim %', cardinality(ids) - gone, cardinality(ids), (l).token using errcode = 'OL003';
  end if;
  insert into outlast._job_end (id, at, state, reason)
  select u, outlast.clock(), outcome, outlast._clean(_end_jobs.reason) from unnest(ids) u;
end $$;

-- The same for a worker, which completes many at once. `repeated`: the answer to the same call was perhaps lost, so what has
-- ended stays as it is.
create or replace function outlast._complete_jobs(token uuid, ids uuid[], repeated boolean default false) returns void
language plpgsql volatile
as $$
declare
  l outlast._lease := outlast._prove(_complete_jobs.token);
begin
  perform outlast._guard(l.expires_at);
  perform outlast._end_jobs(l, outlast._not_ended(ids, repeated), 'd', null);
end $$;

create or replace function outlast._not_ended(ids uuid[], repeated boolean) returns uuid[]
language plpgsql stable
as $$
begin
  if not repeated then return ids; end if;
  return array(select u from unnest(ids) u where not exists (select from outlast._job_end e where e.id = u));
end $$;

-- The last completions of a claim and its end, in one commit. The locks of an end first: two that each hold the shared lock of
-- a completion and want the exclusive one never end. Answers how many were left and are given back.
create or replace function outlast._complete_and_finish_jobs(token uuid, ids uuid[], repeated boolean default false) returns int
language plpgsql volatile
set lock_timeout = '8s'
as $$
declare
  l outlast._lease := outlast._take(_complete_and_finish_jobs.token);
  n int;
begin
  if l.token is null then perform outlast._prove(token); end if;         -- which says that it is lost
  perform outlast._guard(l.expires_at);
  perform outlast._end_jobs(l, outlast._not_ended(ids, repeated), 'd', null);
  n := outlast._give_back(l, false);
  delete from outlast._lease x where x.token = l.token;
  return n;
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

-- Written, and committed, before these start: their worker may not survive them.
create or replace function outlast._start_jobs(token uuid, ids uuid[]) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  perform outlast._prove(_start_jobs.token);
  update outlast._job_claimed c set started = true where c.token = _start_jobs.token and c.id = any (ids);
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
  delete from outlast._job_claimed c where c.id = _fail_job.id and c.token = (l).token;
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

-- Gives back what is left of a claim, under its lease taken exclusively. `lost`: its worker was. Then what it had marked as
-- started is charged and waits to be run alone; the third such death is put before a person.
-- from: claimed; to: ready, later (alone), incident, ended (cancelled).
create or replace function outlast._give_back(l outlast._lease, lost boolean) returns int
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c outlast._job_claimed;
  s outlast._job_state;
  n int := 0;
begin
  for c in select * from outlast._job_claimed x where x.token = (l).token order by x.id loop
    perform pg_advisory_xact_lock(outlast._job_lock(c.id));
    delete from outlast._job_claimed x where x.id = c.id and x.token = (l).token;
    continue when not found;
    n := n + 1;
    s := null;
    if exists (select from outlast._command m where m.id = c.id) then
      perform outlast._lose_command(c.id);
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
  return n;
end $$;

-- Ends a claim. What is left in it nobody has completed or failed: it is given back.
create or replace function outlast._finish_jobs(token uuid) returns int
language plpgsql volatile
as $$
declare
  l outlast._lease := outlast._take(_finish_jobs.token);
  n int;
begin
  if l.token is null or l.room <> 'job' then return 0; end if;
  n := outlast._give_back(l, false);
  delete from outlast._lease x where x.token = l.token;
  return n;
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
    delete from outlast._lease x where x.token = t;
  end loop;
  return n;
end $$;

-- What waits for a process with these names: somebody's claim has lapsed; something is ready; when the next is due.
create or replace function outlast._due_jobs(names text[], out lapsed boolean, out ready boolean, out next_ms bigint)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
begin
  lapsed := exists (select from outlast._lease x where x.room = 'job' and outlast._lapsed(x.expires_at));
  next_ms := (select (extract(epoch from greatest(x.due_at - outlast.clock(), interval '0')) * 1000)::bigint
              from outlast._job_later x where not x.alone order by x.due_at limit 1);
  ready := exists (
    select from unnest(names) u (name)
    where exists (select from outlast._job_ready r where r.name = u.name)
       or exists (select from outlast._job_later r where r.alone and r.name = u.name and r.due_at <= outlast.clock()));
end $$;

-- Removes jobs that ended longer ago than retention.job, and keys that answer no more. Answers how many rows.
create or replace function outlast._forget_jobs(n int) returns int
language plpgsql volatile
set jit = off
as $$
#variable_conflict use_column
declare
  old uuid[];
  gone int;
begin
  if exists (select from outlast._check_settings()) then return 0; end if;
  old := array(select x.id from outlast._job_end x where x.at < outlast.clock() - outlast._setting_interval('retention.job') limit n);
  delete from outlast._job x where x.id = any (old);
  delete from outlast._job_state x where x.id = any (old);
  delete from outlast._command x where x.id = any (old);
  delete from outlast._evidence x where x.command = any (old);
  delete from outlast._contradiction x where x.command = any (old);
  delete from outlast._job_end x where x.id = any (old);
  -- What was told of commands that never came.
  delete from outlast._settlement x where x.ctid = any (array(
    select y.ctid from outlast._settlement y where y.at < outlast.clock() - interval '7 days' order by y.at limit n));
  delete from outlast._job_key x where x.ctid = any (array(
    select y.ctid from outlast._job_key y
    -- Long enough after its life that the answer has been "expired" for a while, and no unfinished job loses it.
    where y.lives_until < outlast.clock() - interval '7 days'
      and (not exists (select from outlast._job j where j.id = y.job) or exists (select from outlast._job_end e where e.id = y.job))
    order by y.lives_until limit n));
  get diagnostics gone = row_count;
  return cardinality(old) + gone;
end $$;
