-- Consumers on a broker. What is delivered is claimed: first the lease, with a row per (event, consumer), then the look into
-- the inbox and into parked, in statements after it. In the other order a second delivery looks before the first one seals,
-- and then takes the lease that became free.
--
-- An ack of a broker proves nothing: what is settled there follows from what is committed here, never the other way round.

-- The envelopes of a call, as JSON, with their payloads beside them. `lane` is the place in the call.
create or replace function outlast._copies(envelopes jsonb, payloads bytea[]) returns setof outlast._claimed
language sql stable
as $$
  select null::uuid, e.id, e.log_id, e.type, e.version, coalesce(e.tenant, ''), e.key, e.actor, e.correlation_id, e.causation_id,
         e.traceparent, e.headers, e.source, e.subject, e.aggregate_version, e.content_type, e.codec_key, payloads[o.n],
         e.emitted_at, 1, 0, o.n::int, e.key_seq
  from jsonb_array_elements(envelopes) with ordinality o (v, n)
  cross join lateral jsonb_to_record(o.v) e (
    id uuid, log_id bigint, type text, version int, tenant text, key text, actor text, correlation_id uuid, causation_id uuid,
    traceparent text, headers jsonb, source text, subject text, aggregate_version bigint, content_type text, codec_key text,
    emitted_at timestamptz, key_seq bigint)
$$;

-- Whether the ring of the inbox has no place for the completion of this event: its id tells no time, or another than that
-- of its emit by more than an emit allows, or one that is still to come. The leaf would be emptied too early, or never.
create or replace function outlast._is_foreign(id uuid, emitted_at timestamptz, at timestamptz) returns boolean
language sql immutable parallel safe
as $$
  select substr(id::text, 15, 1) <> '7' or substr(id::text, 20, 1) not in ('8', '9', 'a', 'b')
    or outlast._v7_time(id) < emitted_at - interval '169 hours' or outlast._v7_time(id) > emitted_at + interval '13 hours'
    or outlast._v7_time(id) > at + interval '13 hours'
$$;

-- May it have been completed, and the proof is gone? Then no handler gets it.
create or replace function outlast._is_too_old(consumer int, id uuid, foreign_at timestamptz, at timestamptz) returns boolean
language plpgsql stable
as $$
begin
  if foreign_at is not null then
    return exists (select from outlast._foreign_place p where p.forgotten_until > foreign_at);
  end if;
  -- No proof in the ring is gone before it is 24 days old.
  return id < outlast._v7_first(at - interval '14 days') and outlast._proof(consumer, id) = 'too-old';
end $$;

-- Registers a consumer that reads a broker, or the types that it did not have yet. It has no place in the log and holds
-- nothing of it: where it begins is its subscription's. Runs in a transaction of its own.
create or replace function outlast._register_delivered(
  name text, types text[], broker text, topic text, subscription text, ordered boolean default false,
  owner text default null, attempts int default 8, local boolean default false,
  tenants text[] default null, sources text[] default null, ack_ms int default null)
returns table (id int, state text, reason text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
begin
  if name is null or name !~ '^[a-z0-9._/-]{1,100}$' then
    raise exception 'consumer % is not 1 to 100 of a-z 0-9 . _ / -', quote_nullable(left(name, 120)) using errcode = 'OL005';
  end if;
  if coalesce(cardinality(types), 0) = 0 then
    raise exception 'consumer % has no event type', name using errcode = 'OL005';
  end if;
  if broker is null or topic is null or subscription is null or attempts < 1 then
    raise exception 'consumer %: no broker, topic or subscription, or % attempts are not one', name, attempts using errcode = 'OL005';
  end if;
  perform outlast._check_filters(name, types, tenants, sources);
  perform pg_advisory_xact_lock(hashtextextended('consumer ' || name, outlast._lock_room(7308)));
  perform outlast._check_alive(name);
  select * into c from outlast._consumer x where x.name = _register_delivered.name;
  if c.id is null then
    insert into outlast._consumer as x (name, ordered, lanes, tenants, sources, start, began, local, owner, attempts, created_at,
      broker, topic, subscription, ack_ms)
    values (_register_delivered.name, _register_delivered.ordered, 1, outlast._as_set(_register_delivered.tenants),
      outlast._as_set(_register_delivered.sources), 'now', outlast._cut_now(), _register_delivered.local,
      _register_delivered.owner, _register_delivered.attempts, outlast.clock(), _register_delivered.broker,
      _register_delivered.topic, _register_delivered.subscription, _register_delivered.ack_ms)
    returning * into c;
  else
    if c.broker is null then
      raise exception 'consumer % is registered as one that reads the log', name
        using errcode = 'OL005', hint = 'what it reads is part of what a consumer is: give the one on the broker another name';
    end if;
    if c.ordered <> ordered then
      raise exception 'consumer % is registered as %', name, case when c.ordered then 'ordered' else 'not ordered' end
        using errcode = 'OL005', hint = 'order is part of what a consumer is: give the other kind another name';
    end if;
    if (c.tenants, c.sources) is distinct from (outlast._as_set(tenants), outlast._as_set(sources)) then
      raise exception 'consumer % is registered for tenants % and sources %', name, coalesce(c.tenants::text, 'of all'), coalesce(c.sources::text, 'of all')
        using errcode = 'OL005', hint = 'a filter is part of what a consumer is: give the other one another name';
    end if;
    -- From one broker to another it stays the same consumer: what it has completed counts wherever it comes from.
    update outlast._consumer x
    set owner = coalesce(_register_delivered.owner, x.owner), attempts = _register_delivered.attempts,
        local = x.local and _register_delivered.local, broker = _register_delivered.broker,
        topic = _register_delivered.topic, subscription = _register_delivered.subscription,
        ack_ms = _register_delivered.ack_ms
    where x.id = c.id;
  end if;
  insert into outlast._consumer_type (consumer, type) select distinct c.id, u from unnest(types) u on conflict do nothing;
  return query select c.id, c.state, c.reason;
end $$;

-- What becomes of what a broker has delivered, one row an event. `run`: it is ours, under this token. `done`, `parked` and
-- `kept`: it is completed, or the retry owns it, from now on in the last case. `other`: not this consumer's. Those may be acked. `defer` and `paused`: not
-- now, deliver it again after so long; they are never settled. Of an ordered consumer a token holds one key. Commits at
-- once, durably. `dead`: why the broker gave up on them: what is not completed is put before a person. `keep`: what is to
-- run is taken over whole in the same commit, so that it may be acked before it runs; if its owner is lost, the retry has it.
-- from: batch; to: retry, quarantined, behind.
create or replace function outlast._claim_delivered(
  consumer int, envelopes jsonb, payloads bytea[], lease_ms int,
  process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null, dead text default null,
  keep boolean default false)
returns table (token uuid, event_id uuid, verdict text, wait_ms int, attempt int, reclaims int)
language plpgsql volatile
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  a outlast._arrived[];
  at timestamptz := outlast.clock();
  taken uuid[];
  lapsed uuid;
  done uuid[];
  parked uuid[];
begin
  perform outlast._check_lease_ms(lease_ms);
  c := outlast._claimable(_claim_delivered.consumer);
  if c.id is null then
    return query select null::uuid, e.event_id, 'paused', 5000, 1, 0 from outlast._copies(envelopes, null) e;
    return;
  end if;
  if c.broker is null then
    raise exception 'consumer % reads the log, not a broker', c.name using errcode = 'OL005';
  end if;
  a := outlast._arrivals(c, envelopes, at);

  -- The leases first. Whoever is taking the same event at this moment is waited for: his claim is short.
  with put as (
    insert into outlast._delivered as d (consumer, event_id, token, foreign_at, tenant, key, log_id, since, envelope, payload)
    select c.id, x.event_id, x.token, x.foreign_at, case when x.key is not null then x.tenant end, x.key, x.log_id, at,
           case when keep then envelopes -> (x.n - 1) end, case when keep then payloads[x.n] end
    from unnest(a) x where x.verdict is null order by x.event_id
    on conflict do nothing
    returning d.event_id
  )
  select coalesce(array_agg(p.event_id), '{}') into taken from put p;
  if exists (select from unnest(a) x where x.verdict is null and x.event_id <> all (taken)) then
    for lapsed in
      select distinct l.token from unnest(a) x
      join outlast._delivered d on d.consumer = c.id and d.event_id = x.event_id
      join outlast._lease l on l.token = d.token
      where x.verdict is null and x.event_id <> all (taken) and outlast._lapsed(l.expires_at) order by l.token
    loop
      perform outlast._lapse(lapsed);
    end loop;
    with free as materialized (
      select d.event_id from outlast._delivered d
      where d.consumer = c.id and d.token is null
        and d.event_id in (select x.event_id from unnest(a) x where x.verdict is null and x.event_id <> all (taken))
      order by d.event_id for update skip locked
    ), mine as (
      update outlast._delivered d set token = x.token, since = at,
        envelope = case when keep then envelopes -> (x.n - 1) end, payload = case when keep then payloads[x.n] end
      from free f join unnest(a) x on x.event_id = f.event_id
      where d.consumer = c.id and d.event_id = f.event_id
      returning d.event_id
    )
    select taken || coalesce(array_agg(m.event_id), '{}') into taken from mine m;
    a := array(
      select row(x.n, x.event_id, x.token, x.verdict, x.wait_ms, coalesce(d.lapses, 0), coalesce(d.suspect, false), coalesce(d.foreign_at, x.foreign_at),
                 x.tenant, x.key, coalesce(d.log_id, x.log_id))::outlast._arrived
      from unnest(a) x
      left join outlast._delivered d on d.consumer = c.id and d.event_id = x.event_id and d.token = x.token);
  end if;

  -- Then the looks, in statements that see all that was committed before we had the leases.
  done := array(select * from outlast._sealed(c.id, array(select x.event_id from unnest(a) x where x.verdict is null)));
  parked := array(
    select p.event_id from unnest(a) x join outlast._parked p on p.consumer = c.id and p.event_id = x.event_id
    where x.verdict is null);
  a := array(
    select row(x.n, x.event_id, x.token,
               case when x.verdict is not null then x.verdict
                    when x.event_id = any (done) then 'done'
                    when x.event_id = any (parked) then 'parked'
                    when x.event_id <> all (taken) then case when exists (
                        select from outlast._delivered d
                        where d.consumer = c.id and d.event_id = x.event_id and d.envelope is not null) then 'parked' else 'defer' end
                    when outlast._is_too_old(c.id, x.event_id, x.foreign_at, at) then 'too-old'
                    when x.suspect then 'crashed'
                    when dead is not null then 'dead-letter'
                    else 'run' end,
               null, x.lapses, x.suspect, x.foreign_at, x.tenant, x.key, x.log_id)::outlast._arrived
    from unnest(a) x);
  if c.ordered then
    a := outlast._in_order(c, a);
  end if;
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if exists (select from unnest(a) x where x.verdict in ('too-old', 'crashed', 'dead-letter', 'behind')) then
    perform outlast._park_arrived(c, a, envelopes, payloads, dead);
  end if;

  delete from outlast._delivered d
  using unnest(a) x
  where d.consumer = c.id and d.event_id = x.event_id and d.token = x.token and x.verdict <> 'run';
  insert into outlast._lease (token, room, consumer, process, expires_at)
  select distinct x.token, 'delivered', c.id, _claim_delivered.process, at + make_interval(secs => lease_ms / 1000.0)
  from unnest(a) x where x.verdict = 'run';
  if found and process is not null then
    perform outlast._remember(process, seq, nonce, acked);
  end if;
  return query
    select case when x.verdict = 'run' then x.token end, x.event_id,
           case when x.verdict in ('too-old', 'crashed', 'dead-letter', 'behind') then 'kept' else x.verdict end,
           case when x.verdict = 'defer' then coalesce(x.wait_ms, (
             select least(greatest(100, ceil(extract(epoch from l.expires_at - at) * 1000)), lease_ms)::int
             from outlast._delivered d join outlast._lease l on l.token = d.token
             where d.consumer = c.id and d.event_id = x.event_id), 1000) end,
           1 + x.lapses,
           case when x.verdict = 'run' then max(x.lapses) over (partition by x.token, x.verdict = 'run') else 0 end
    from unnest(a) x
    order by x.token, case when c.ordered then x.log_id end, x.n;
end $$;

-- What arrived, in the order in which locks are taken: by event. Twice in one call is once. What is not this consumer's has
-- its verdict. Of an ordered consumer each key has a token of its own, and each event without one; else there is one token.
create or replace function outlast._arrivals(c outlast._consumer, envelopes jsonb, at timestamptz) returns outlast._arrived[]
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  return array(
    with given as materialized (
      select distinct on (e.event_id) e.*,
             case when not (c).ordered then '' when e.key is null then e.event_id::text
                  else jsonb_build_array(e.tenant, e.key)::text end as lot
      from outlast._copies(envelopes, null) e
      order by e.event_id, e.lane
    ), placed as materialized (
      -- Numbers are drawn in the order of the call: what tells no place keeps the order in which it came.
      select g.*, case when (c).ordered and g.key is not null then coalesce(g.log_id, nextval('outlast._arrival')) end as place
      from given g order by g.lane
    ), tokens as materialized (
      select g.lot, gen_random_uuid() as token from (select distinct lot from given) g
    )
    select row(g.lane, g.event_id, t.token,
               case when ((c).tenants is null or g.tenant = any ((c).tenants)) and ((c).sources is null or g.source = any ((c).sources))
                         and exists (select from outlast._consumer_type y
                                     where y.consumer = (c).id and outlast._matches(g.type, y.type)) then null
                    else 'other' end,
               null, 0, false, case when outlast._is_foreign(g.event_id, g.emitted_at, at) then g.emitted_at end,
               g.tenant, case when (c).ordered then g.key end, g.place)::outlast._arrived
    from placed g join tokens t on t.lot = g.lot
    order by g.event_id);
end $$;

-- Of an ordered consumer: who may run. A key has a leader while anything of it is in work or parked. Whoever finds another
-- one there goes behind him, durably, so that it can be acked; whoever finds a key free leads it with the first of his
-- events, and all of them run one after the other. Beyond the bound of a key nothing is taken from the broker.
create or replace function outlast._in_order(c outlast._consumer, a outlast._arrived[]) returns outlast._arrived[]
language plpgsql volatile
set lock_timeout = '8s'
as $$
#variable_conflict use_column
declare
  ours constant text[] := array['run', 'too-old', 'crashed', 'dead-letter'];
begin
  if not exists (select from unnest(a) x where x.verdict = any (ours) and x.key is not null) then return a; end if;
  insert into outlast._parked_key as k (consumer, tenant, key, leader, since)
  select (c).id, f.tenant, f.key, f.event_id, outlast.clock()
  from (select distinct on (x.tenant, x.key) x.* from unnest(a) x
        where x.verdict = any (ours) and x.key is not null order by x.tenant, x.key, x.log_id) f
  order by f.tenant, f.key
  on conflict (consumer, tenant, key) do update set behind = k.behind;
  -- Read after the locks. The first that cannot run stops those after it.
  return array(
    select row(y.n, y.event_id, y.token,
               case when y.verdict <> all (ours) or y.key is null then y.verdict
                    when y.at_limit and y.leader <> y.event_id then 'defer'
                    when not y.led or y.leader <> y.event_id and (y.behind > 0 or y.stopped) then 'behind'
                    else y.verdict end,
               case when y.at_limit and y.leader <> y.event_id then 30000 end, y.lapses, y.suspect, y.foreign_at, y.tenant, y.key, y.log_id)::outlast._arrived
    from (
      select x.*, k.leader, k.at_limit, k.behind,
             bool_or(x.event_id = k.leader) filter (where x.verdict = any (ours)) over (partition by x.tenant, x.key) as led,
             bool_or(x.verdict = any (ours) and x.verdict <> 'run') over (
               partition by x.tenant, x.key order by x.log_id rows between unbounded preceding and current row) as stopped
      from unnest(a) x
      left join outlast._parked_key k on k.consumer = (c).id and k.tenant = x.tenant and k.key = x.key) y);
end $$;

-- Parks what arrived and is not to run: as copies, because the log may not be here.
create or replace function outlast._park_arrived(
  c outlast._consumer, a outlast._arrived[], envelopes jsonb, payloads bytea[], dead text) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  x outlast._arrived;
  copy outlast._claimed;
  n int;
begin
  for x in
    select y.* from unnest(a) y where y.verdict in ('too-old', 'crashed', 'dead-letter', 'behind', 'lost')
    order by y.tenant, y.key, y.log_id, y.n
  loop
    select e.* into strict copy from outlast._copies(envelopes, payloads) e where e.lane = x.n;
    insert into outlast._parked (consumer, event_id, log_id, state, class, failures, crashes, reason, signature, next_at,
      parked_at, changed_at, schema_version, emitted_at, aggregate_version, key_seq, correlation_id, causation_id, type,
      tenant, key, source, subject, actor, traceparent, content_type, codec_key, headers, payload, foreign_id)
    select (c).id, copy.event_id, coalesce(x.log_id, copy.log_id, nextval('outlast._arrival')), s.state, s.class,
      case when x.verdict = 'crashed' then 1 else 0 end, case when x.verdict = 'crashed' then 1 else 0 end, s.reason,
      outlast._signature(copy.type, s.class, s.reason), case when s.state = 'retry' then outlast.clock() end, outlast.clock(), outlast.clock(),
      copy.schema_version, copy.emitted_at, copy.aggregate_version, copy.key_seq, copy.correlation_id, copy.causation_id, copy.type,
      copy.tenant, copy.key, copy.source, copy.subject, copy.actor, copy.traceparent, copy.content_type, copy.codec_key, copy.headers,
      copy.payload, x.foreign_at is not null
    from (select case x.verdict when 'behind' then 'behind' when 'crashed' then 'retry' when 'lost' then 'retry'
                   else 'quarantined' end as state,
                 case x.verdict when 'lost' then 'retry' else x.verdict end as class,
                 case x.verdict when 'behind' then 'an earlier event of its key is not done'
                   when 'lost' then 'its worker ended before it was done'
                   when 'crashed' then 'the worker died while this event ran'
                   when 'too-old' then 'it may have been completed: the proof of that is older than retention.inbox and gone'
                   else outlast._clean(dead) end as reason) s
    on conflict do nothing;
    get diagnostics n = row_count;
    if n > 0 and x.verdict = 'behind' then
      perform outlast._count_behind((c).id, array[row(null, null, x.event_id, x.tenant, x.key)::outlast._keyed]);
    end if;
  end loop;
end $$;
