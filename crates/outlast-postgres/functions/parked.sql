-- Parked: what a consumer could not complete yet, as whole copies. Only failures touch these mutable rows.

-- Full jitter: anything between nothing and 1 s, 2 s, 4 s .. 10 minutes.
create or replace function outlast._backoff(failures int, first_ms bigint default null, most_ms bigint default null) returns interval
language sql volatile parallel safe
as $$
  select make_interval(secs => random() * least(coalesce(most_ms, 600000),
    coalesce(first_ms, 1000) * power(2, least(greatest(failures, 1), 31) - 1)) / 1000)
$$;

-- Text from outside is hostile: control characters go, the rest is cut.
create or replace function outlast._clean(txt text) returns text
language sql immutable parallel safe
as $$ select left(regexp_replace(txt, '[\x01-\x08\x0b-\x1f\x7f]', '', 'g'), 4096) $$;

-- Alike failures share a signature: the type, the class, and the reason without its numbers and ids.
create or replace function outlast._signature(type text, class text, reason text) returns text
language sql immutable parallel safe
as $$ select left(encode(sha256(convert_to(type || ' ' || class || ' ' ||
        regexp_replace(coalesce(reason, ''), '[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+', '#', 'g'), 'UTF8')), 'hex'), 12) $$;

-- Can a process take this type in this version? By the handler of its own, if there is one, else by one for a pattern.
create or replace function outlast._can_take(types text[], versions int[], type text, version int) returns boolean
language sql immutable parallel safe
as $$
  select exists (
    select from unnest(_can_take.types, _can_take.versions) t (entry, newest)
    where t.newest >= _can_take.version
      and case when _can_take.type = any (_can_take.types) then t.entry = _can_take.type
          else outlast._matches(_can_take.type, t.entry) end)
$$;

-- Claims due parked events, each under a lease of its own. An event whose worker died is charged; the third such death
-- quarantines it. A suspect is handed out alone, and only to a process that runs no other: else the innocent would be
-- charged with it. `types` and `versions` say what this process can take: what waited for that wakes, and what is due and
-- too new for it begins to wait. Of a key only the leader is ever due.
-- from: retry, waiting-version; to: retry, quarantined, waiting-version.
create or replace function outlast._claim_parked(
  consumer int, n int, lease_ms int, types text[], versions int[],
  process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null,
  holder text default null)
returns setof outlast._claimed
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  due uuid;
  l outlast._lease;
  p outlast._parked;
  fresh uuid;
  taken int := 0;
  moved int := 0;
  at timestamptz := outlast.clock();
begin
  perform outlast._check_isolation();
  perform outlast._check_running(_claim_parked.consumer);
  if not exists (select from outlast._consumer c where c.id = _claim_parked.consumer and c.state = 'active') then
    return;
  end if;
  -- One type at a time: in one statement the planner read all that wait.
  for i in 1..coalesce(cardinality(types), 0) loop
    if right(types[i], 1) = '*' then
      update outlast._parked w set state = 'retry', next_at = at, changed_at = at
      where w.consumer = _claim_parked.consumer and w.state = 'waiting-version'
        and outlast._can_take(types, versions, w.type, w.schema_version);
      continue;
    end if;
    update outlast._parked w set state = 'retry', next_at = at, changed_at = at
    where w.consumer = _claim_parked.consumer and w.state = 'waiting-version'
      and w.type = types[i] and w.schema_version <= versions[i];
  end loop;
  for due in
    select x.event_id from outlast._parked x
    where x.consumer = _claim_parked.consumer and x.state = 'retry' and x.next_at <= at
      and not exists (select from outlast._lease y where y.token = x.token and not outlast._lapsed(y.expires_at))
    order by x.next_at
  loop
    exit when taken >= n;
    -- The lease of the try before: lapsed, or recorded and not ended. Ended like any other, with both locks. Neither
    -- waits, and what is not to be had takes no transaction id and no place.
    select * into l from outlast._lease x
    where x.room = 'parked' and x.consumer = _claim_parked.consumer and x.event_id = due;
    if found then
      continue when not pg_try_advisory_xact_lock(outlast._lease_lock(l.token));
      select * into l from outlast._lease x where x.token = l.token for update skip locked;
      continue when not found;
    end if;
    if exists (select from outlast._sealed(_claim_parked.consumer, array[due])) then
      continue when l.token is not null and not outlast._lapsed(l.expires_at);
      delete from outlast._lease x where x.token = l.token;
      perform outlast._unpark(_claim_parked.consumer, due);
      continue;
    end if;
    select * into p from outlast._parked x
    where x.consumer = _claim_parked.consumer and x.event_id = due
    for update skip locked;
    continue when not found or p.state <> 'retry' or p.next_at > at;
    -- Somebody may have claimed it between the list and the locks; his lease is visible only now.
    if l.token is null then
      continue when exists (select from outlast._lease x
                            where x.room = 'parked' and x.consumer = p.consumer and x.event_id = due);
    else
      continue when l.token = p.token and not outlast._lapsed(l.expires_at);
      delete from outlast._lease x where x.token = l.token;
    end if;
    -- No proof of a completion is gone before it is 24 days old.
    if not p.foreign_id and due < outlast._v7_first(at - interval '14 days') and outlast._proof(p.consumer, due, p.log_id) = 'too-old' then
      update outlast._parked x
      set state = 'quarantined', class = 'too-old', next_at = null, token = null, changed_at = at,
          reason = 'it may have been completed: the proof of that is older than retention.inbox and gone'
      where x.consumer = p.consumer and x.event_id = due;
      continue;
    end if;
    if p.token is not null then
      -- Its runner is gone.
      p.token := null;
      p.crashes := p.crashes + 1;
      p.failures := p.failures + 1;
      update outlast._parked x
      set token = null, crashes = p.crashes, failures = p.failures, changed_at = at,
          state = case when p.crashes < 3 then 'retry' else 'quarantined' end,
          next_at = case when p.crashes < 3 then x.next_at end,
          class = case when p.crashes < 3 then x.class else 'crashed' end,
          reason = case when p.crashes < 3 then x.reason else 'the worker was lost 3 times while this event ran' end
      where x.consumer = p.consumer and x.event_id = due;
      continue when p.crashes >= 3;
    end if;
    if types is not null and not outlast._can_take(types, versions, p.type, p.schema_version) then
      update outlast._parked x
      set state = 'waiting-version', class = 'waiting-version', next_at = null, token = null, changed_at = at,
          reason = 'no worker with a handler for this type and version'
      where x.consumer = p.consumer and x.event_id = due;
      moved := moved + 1;
      exit when moved >= 200;                    -- the rest in the next call
      continue;
    end if;
    if p.crashes > 0 then
      continue when taken > 0 or exists (
        select from outlast._lease y
        join outlast._parked x on x.token = y.token
        where y.room = 'parked' and y.event_id is not null and y.process = _claim_parked.process and x.crashes > 0);
      n := 1;
    end if;
    taken := taken + 1;
    fresh := gen_random_uuid();
    insert into outlast._lease (token, room, consumer, event_id, process, holder, expires_at)
    values (fresh, 'parked', p.consumer, due, _claim_parked.process, _claim_parked.holder,
            at + make_interval(secs => lease_ms / 1000.0));
    update outlast._parked x set token = fresh, changed_at = at where x.consumer = p.consumer and x.event_id = due;
    if taken = 1 and process is not null then
      perform outlast._remember(process, seq, nonce, acked);
    end if;
    return next row(fresh, p.event_id, p.log_id, p.type, p.schema_version::int, p.tenant, p.key, p.actor,
      p.correlation_id, p.causation_id, p.traceparent, p.headers, p.source, p.subject, p.aggregate_version,
      p.content_type, p.codec_key, p.payload, p.emitted_at, p.failures + 1, 0, null, p.key_seq)::outlast._claimed;
  end loop;
end $$;

-- Parks an event this process cannot read yet: no charge, no place taken; it wakes when a worker that can asks.
-- from: batch, retry; to: waiting-version.
create or replace function outlast._wait_for_version(token uuid, id uuid) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  l outlast._lease := outlast._prove(_wait_for_version.token);
begin
  if l.room = 'batch' then
    if outlast._park(outlast._batch_of(l), array[outlast._in_batch(l, id)], 'waiting-version',
         'no worker with a handler for this type and version', 0) = 0 then
      raise exception 'event % is parked: a later try owns it', id using errcode = 'OL003';
    end if;
    return;
  end if;
  update outlast._parked p
  set state = 'waiting-version', class = 'waiting-version', next_at = null, token = null, changed_at = outlast.clock()
  where p.consumer = l.consumer and p.event_id = _wait_for_version.id and p.token = l.token;
  if not found then
    raise exception 'event % is not in the claim %', id, _wait_for_version.token using errcode = 'OL003';
  end if;
end $$;

-- What became of an event whose handler failed; in a transaction of its own: 'retry', 'quarantined', or 'behind' if an
-- earlier event of its key has to be done first. Later events of its key wait behind it.
-- from: batch, retry; to: retry, quarantined, behind.
create or replace function outlast.fail(token uuid, id uuid, class text, reason text, after_ms bigint default null)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return outlast._fail(fail.token, fail.id, fail.class, fail.reason, fail.after_ms, fail.class is distinct from 'throttled');
end $$;

-- The same; during an outage of the destination a try is not charged, whatever its class.
-- What comes after it is of jobs only: see _fail_job.
create or replace function outlast._fail(
  token uuid, id uuid, class text, reason text, after_ms bigint, charged boolean, attempts int default null,
  first_ms bigint default null, most_ms bigint default null)
returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  l outlast._lease;
  txt text := outlast._clean(reason);
  envelopes jsonb;
  payloads bytea[];
begin
  perform outlast._check_class(_fail.id, _fail.class);
  l := outlast._prove(_fail.token);
  if l.room = 'batch' then
    if exists (select from outlast._sealed(l.consumer, array[_fail.id])) then
      raise exception 'event % was already sealed', _fail.id using errcode = 'OL002';
    end if;
    if outlast._park(outlast._batch_of(l), array[outlast._in_batch(l, _fail.id)], _fail.class, txt, 0) = 0 then
      raise exception 'event % is parked: a later try owns it', _fail.id using errcode = 'OL003';
    end if;
  elsif l.room = 'job' then
    return outlast._fail_job(l, _fail.id, _fail.class, txt, after_ms, charged, attempts, first_ms, most_ms);
  elsif l.room = 'delivered' then
    -- By the copy that was taken over with it, and those of its key behind it. Without one only its worker can.
    select jsonb_agg(d.envelope order by d.event_id <> e.event_id, d.log_id), array_agg(d.payload order by d.event_id <> e.event_id, d.log_id)
    into envelopes, payloads
    from outlast._delivered e
    join outlast._delivered d on d.token = e.token
      and (d.event_id = e.event_id or (d.tenant, d.key) = (e.tenant, e.key) and d.log_id > e.log_id)
    where e.consumer = l.consumer and e.event_id = _fail.id and e.token = l.token and e.envelope is not null;
    if envelopes is null then
      raise exception 'event % is not in the claim %, or only its worker has it', _fail.id, _fail.token using errcode = 'OL003';
    end if;
    l := outlast._hand_over(_fail.token, envelopes, payloads, 'retry', _fail.class, txt);
  elsif l.room <> 'parked' or l.event_id <> _fail.id then
    raise exception 'event % is not in the claim %', _fail.id, _fail.token using errcode = 'OL003';
  end if;
  return outlast._failed(l, _fail.id, _fail.class, txt, after_ms, charged);
end $$;

create or replace function outlast._check_class(id uuid, class text) returns void
language plpgsql immutable parallel safe
as $$
begin
  if class is null or class not in ('retry', 'throttled', 'unknown', 'permanent', 'unclassified') then
    raise exception 'fail %: class % is not retry, throttled, unknown, permanent or unclassified', id,
      quote_nullable(class) using errcode = 'OL005';
  end if;
end $$;

-- A failure of what is parked by now, under a lease that was proven: the charge, and when or whether another try follows.
create or replace function outlast._failed(
  l outlast._lease, id uuid, class text, txt text, after_ms bigint, charged boolean) returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  p outlast._parked;
  at timestamptz;
  budget int;
  -- Bounded before it is an interval: what is too long for one turned into no time at all.
  wait interval := make_interval(secs => greatest(least(coalesce(after_ms, 0), 604800000), 0) / 1000.0);
begin
  select * into p from outlast._parked x
  where x.consumer = (l).consumer and x.event_id = _failed.id for update;
  if p.event_id is null or ((l).room = 'parked' and p.token is distinct from (l).token) then
    raise exception 'event % is not in the claim %', _failed.id, (l).token using errcode = 'OL003';
  end if;
  at := outlast.clock();
  if charged then p.failures := p.failures + 1; end if;
  select c.attempts into budget from outlast._consumer c where c.id = (l).consumer;
  -- A told waiting time may only lengthen ours, up to an hour for a throttled try and a week for any other.
  wait := least(greatest(wait, case when charged then outlast._backoff(p.failures) else interval '1 second' end),
                case when charged then interval '7 days' else interval '1 hour' end);
  if p.state <> 'behind' then
    p.state := case when _failed.class = 'permanent' or p.failures >= budget then 'quarantined' else 'retry' end;
  end if;
  update outlast._parked x
  set state = p.state, class = _failed.class, failures = p.failures, reason = txt,
      signature = outlast._signature(x.type, _failed.class, txt), token = null, changed_at = at,
      next_at = case when p.state = 'retry' then at + wait end
  where x.consumer = (l).consumer and x.event_id = _failed.id;
  return p.state;
end $$;
