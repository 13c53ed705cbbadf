-- Claims of jobs and commands: what was taken, what of it the process may have, and under which lease.

-- What was taken, whole, under which lease and from where each stood, in that order. `commands`: it is of commands. Of one text with
-- whoever asks, which is inlined: to make rows of an array of rows again cost a claim as much as to read them.
create or replace function outlast._taken(token uuid, ids uuid[], seqs bigint[], commands boolean) returns setof outlast._taken_job
language sql stable
as $$
  select _taken.token, j.id, j.kind::"char", j.name, j.tenant, j.key, j.account, j.priority, u.seq, j.schema_version::int,
         1 + coalesce(s.failures, 0), coalesce(s.lapses, 0), j.accepted_at, j.correlation_id, j.causation_id, j.source, j.actor,
         j.traceparent, j.content_type, j.codec_key, j.payload,
         m.next, m.state, m.version, m.provider_key, m.reference, null::jsonb
  from unnest(_taken.ids, _taken.seqs) with ordinality u (id, seq, n)
  join outlast._job j on j.id = u.id
  left join outlast._job_state s on s.id = u.id
  left join outlast._command m on _taken.commands and m.id = u.id
  order by u.n
$$;

-- How large it is, and whether something of it is not as usual: newer than the process reads, or asked to go.
create or replace function outlast._weigh(ids uuid[], version int, out bytes bigint, out odd boolean)
language plpgsql stable
as $$
begin
  select sum(octet_length(j.payload)), bool_or(s.cancel is not null and j.kind = 'j' or j.schema_version > _weigh.version)
  into _weigh.bytes, _weigh.odd
  from unnest(_weigh.ids) u
  join outlast._job j on j.id = u
  left join outlast._job_state s on s.id = u;
end $$;

-- What of it the process may have: not what somebody has asked to go in the meantime, which goes now; not a newer version
-- than it reads, which is put off, uncharged; and not more than may be in memory at once, but `one` in any case: what is beyond
-- goes back to where it stood.
-- from: claimed; to: ready, later, ended (cancelled).
create or replace function outlast._sift_jobs(jobs outlast._taken_job[], version int, max_bytes bigint, one boolean)
returns outlast._taken_job[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  j outlast._taken_job;
  s outlast._job_state;
  kept int[] := '{}';
  bytes bigint := 0;
  at timestamptz := outlast.clock();
begin
  for i in 1..cardinality(jobs) loop
    j := jobs[i];
    select * into s from outlast._job_state x where x.id = j.id and x.cancel is not null;
    if found and j.kind = 'j' then
      insert into outlast._job_end (id, at, state, reason) values (j.id, at, 'x', s.cancel);
      continue;
    end if;
    if j.schema_version > version then
      -- More and more seldom: whoever waits for a deploy looks for it each minute at least.
      perform outlast._put_off(j.id, least(greatest((at - j.accepted_at) / 4, interval '10 seconds'), interval '1 minute'));
      insert into outlast._job_state as x (id, class, reason, changed_at)
      values (j.id, 'waiting-version', 'no worker with a handler for this version', at)
      on conflict (id) do update set class = excluded.class, reason = excluded.reason, changed_at = excluded.changed_at
      where x.class is distinct from excluded.class;
      continue;
    end if;
    bytes := bytes + octet_length(j.payload);
    if bytes > max_bytes and (cardinality(kept) > 0 or not one) then
      perform outlast._ready(j.id, j.seq);
      continue;
    end if;
    kept := kept || i;
  end loop;
  return array(select jobs[k] from unnest(kept) k);
end $$;

-- One that its worker may not have survived, by itself, if this process has no other such in work: else the innocent would
-- be charged with it. Under a lease of its own. `versions`: the newest of each name that this process reads.
create or replace function outlast._claim_alone(names text[], versions int[], lease_ms int, process uuid, holder text)
returns outlast._taken_job[]
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
  fresh uuid := gen_random_uuid();
  one uuid;
  account text;
  jobs outlast._taken_job[];
begin
  if process is not null and exists (
    select from outlast._lease l
    join outlast._job_claimed c on c.token = l.token
    join outlast._job_state s on s.id = c.id
    where l.room = 'job' and l.process = _claim_alone.process and s.crashes > 0) then
    return null;
  end if;
  for i in 1..coalesce(cardinality(names), 0) loop
    select x.id, j.account into one, account from outlast._job_later x join outlast._job j on j.id = x.id
    where x.alone and x.name = names[i] and x.due_at <= at and j.schema_version <= versions[i]
      and outlast._account_admits(j.account)
    order by x.due_at limit 1 for update of x skip locked;
    continue when not found;
    perform outlast._account_took(account, 1);
    delete from outlast._job_later x where x.id = one;
    jobs := array(select t from outlast._taken(fresh, array[one], array[0::bigint], names[i] like 'command:%') t);
    if (select w.odd from outlast._weigh(array[one], versions[i]) w) then
      jobs := outlast._sift_jobs(jobs, versions[i], 0, true);
      continue when cardinality(jobs) = 0;
    end if;
    if names[i] like 'entity:%' then
      jobs := outlast._entities_taken(jobs);
    end if;
    insert into outlast._lease (token, room, process, holder, expires_at)
    values (fresh, 'job', _claim_alone.process, _claim_alone.holder, at + make_interval(secs => lease_ms / 1000.0));
    insert into outlast._job_claimed (id, token, account, started)
    values (one, fresh, account, true);
    return jobs;
  end loop;
  return null;
end $$;

-- Claims what may run now of these names (of entities, after their new marks were looked at), at most `rooms` of each, each name under a lease of its own; or one that is to run
-- alone, and nothing beside it. Of a name every account and tenant with work gets as much as any other; what one leaves goes
-- to the rest. `after` says per name behind which group to begin, so that with more groups than room each has its turn, and
-- `floors` what not to look at again (see _job_groups). A newer version than the process reads is put off, uncharged. Not more
-- than max_bytes of all names, but one job in any case. Durable before it leaves.
-- from: ready, later (alone); to: claimed.
create or replace function outlast._claim_jobs(
  names text[], versions int[], rooms int[], max_bytes bigint, lease_ms int,
  process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null,
  holder text default null, after jsonb default '{}', floors jsonb default '{}')
returns setof outlast._taken_job
language plpgsql volatile
-- Of all that is called from here, too. Nested loops alone: a plan that was made while the tables were small merges, and so reads all
-- jobs that there ever were, until statistics are taken.
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set enable_hashjoin = off
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
  bytes bigint := max_bytes;                     -- what is left of it
  paused text[];
  waits boolean;                                 -- one that is to run alone
  open int[];
  alone outlast._taken_job[];
  got record;
  any_taken boolean := false;
begin
  perform outlast._check_isolation();
  perform outlast._check_running();
  perform outlast._check_lease_ms(lease_ms);
  if coalesce(cardinality(names), 0) = 0 then return; end if;
  if array_to_string(names, ' ') like '%entity:%' then
    perform outlast._fold_marks(2000);           -- as many as keep nobody else's claim waiting
  end if;
  select array(select p.name from outlast._job_pause p where p.name = any (names)),
         exists (select from outlast._job_later x where x.alone and x.name = any (names) and x.due_at <= at)
  into paused, waits;
  if waits then
    open := array(select i from generate_series(1, cardinality(names)) i where rooms[i] > 0 and names[i] <> all (paused));
    alone := outlast._claim_alone(array(select names[i] from unnest(open) i), array(select versions[i] from unnest(open) i),
      lease_ms, process, holder);
    if cardinality(alone) > 0 then
      perform outlast._durable(process, seq, nonce, acked);
      return query select * from unnest(alone);
      return;
    end if;
  end if;
  for i in 1..cardinality(names) loop
    continue when coalesce(rooms[i], 0) < 1 or names[i] = any (paused);
    exit when any_taken and bytes < 1;
    select * into got from outlast._claim_name(names[i], versions[i], least(rooms[i], 1000), bytes, not any_taken, after -> names[i],
      floors -> names[i], lease_ms, process, holder);
    continue when got.token is null;
    any_taken := true;
    bytes := bytes - got.bytes;
    if names[i] like 'entity:%' then
      return query select * from unnest(outlast._entities_taken(array(select t from outlast._taken(got.token, got.ids, got.seqs, false) t)));
    else
      return query select * from outlast._taken(got.token, got.ids, got.seqs, names[i] like 'command:%');
    end if;
  end loop;
  if any_taken then
    perform outlast._durable(process, seq, nonce, acked);
  end if;
end $$;

-- The same of one name: which, where each stood, and under which lease; or nothing.
create or replace function outlast._claim_name(
  name text, version int, room int, max_bytes bigint, one boolean, after jsonb, floors jsonb, lease_ms int, process uuid, holder text,
  out token uuid, out ids uuid[], out seqs bigint[], out bytes bigint)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  commands boolean := name like 'command:%';
  entities boolean := name like 'entity:%';
  groups outlast._job_group[];
  counted text[];
  n int;
  jobs outlast._taken_job[];
  odd boolean;
begin
  -- Again, if all that was taken has to wait: behind it there may be what has not to.
  for round in 1..10 loop
    groups := outlast._job_groups(_claim_name.name, after ->> 0, after ->> 1, null, null, floors, room);
    if after is not null and cardinality(groups) < room then
      -- Round again, up to where it began.
      groups := groups || outlast._job_groups(_claim_name.name, null, null, after ->> 0, after ->> 1, floors, room - cardinality(groups));
    end if;
    n := cardinality(groups);
    if n = 0 then return; end if;
    if commands then
      counted := array(select distinct g.account from unnest(groups) g where g.account <> '' and outlast._account_counts(g.account));
    end if;
    if cardinality(counted) > 0 then
      select * into ids, seqs from outlast._take_counted(_claim_name.name, groups, room, counted);
    elsif n = 1 then
      select * into ids, seqs from outlast._take_of(_claim_name.name, groups[1], room);
    else
      select * into ids, seqs from outlast._take_fairly(_claim_name.name, groups, room);
    end if;
    if coalesce(cardinality(ids), 0) = 0 then return; end if;
    select * into bytes, odd from outlast._weigh(ids, version);
    if odd or bytes > max_bytes and (cardinality(ids) > 1 or not one) then
      jobs := outlast._sift_jobs(array(select t from outlast._taken(null, ids, seqs, commands) t), version, max_bytes, one);
      ids := array(select u.id from unnest(jobs) u);
      seqs := array(select u.seq from unnest(jobs) u);
      bytes := (select sum(octet_length(u.payload)) from unnest(jobs) u);
    end if;
    if (commands or entities) and cardinality(ids) > 0 then
      select * into ids, seqs from outlast._exclude(ids, seqs);
    end if;
    exit when cardinality(ids) > 0;
  end loop;
  if cardinality(ids) = 0 then
    -- Behind all that has to wait there may be what has not: whoever sleeps looks again.
    perform nextval('outlast._event_id');
    perform outlast._woken();
    return;
  end if;
  token := gen_random_uuid();
  insert into outlast._lease (token, room, process, holder, expires_at)
  values (_claim_name.token, 'job', _claim_name.process, _claim_name.holder, outlast.clock() + make_interval(secs => lease_ms / 1000.0));
  if commands then
    insert into outlast._job_claimed (id, token, account) select j.id, _claim_name.token, j.account from outlast._job j where j.id = any (ids);
    if cardinality(counted) > 0 then
      perform outlast._account_took(j.account, count(*)::int) from outlast._job j where j.id = any (ids) and j.account = any (counted) group by j.account;
    end if;
  else
    insert into outlast._job_claimed (id, token) select u, _claim_name.token from unnest(ids) u;
  end if;
end $$;

-- The claim of a runner in another language, who marks nothing: what somebody was lost with counts as started.
create or replace function outlast._claim_job(name text, n int, lease_ms int, holder text) returns setof outlast._taken_job
language plpgsql volatile
set enable_seqscan = off
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
