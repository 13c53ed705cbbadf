-- What becomes of what was delivered: sealed under its lease, handed over to the retry as a whole copy, or left by an owner who
-- is gone. Nothing here speaks to a broker; whoever called acks when it has committed.

-- Refuses what was not delivered under this lease, and what the retry owns.
create or replace function outlast._check_delivered(l outlast._lease, ids uuid[]) returns void
language plpgsql stable
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  id uuid;
begin
  select u into id from unnest(ids) u
  where not exists (select from outlast._delivered d
                    where d.consumer = (l).consumer and d.event_id = u and d.token = (l).token)
  limit 1;
  if id is not null then
    raise exception 'event % is not in the claim %', id, (l).token using errcode = 'OL003';
  end if;
  select p.event_id into id from unnest(ids) u
  join outlast._parked p on p.consumer = (l).consumer and p.event_id = u limit 1;
  if id is not null then
    raise exception 'event % is parked: a later try owns it', id using errcode = 'OL003';
  end if;
end $$;

-- The completions of events that were delivered under a lease that was proven: in the inbox like any other.
create or replace function outlast._seal_delivered(
  l outlast._lease, ids uuid[], repeated boolean, outcome "char" default 'd', reason text default null) returns int
language plpgsql volatile
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
  n int;
  m int := 0;
begin
  perform outlast._check_delivered(l, ids);
  insert into outlast._processed_event (event_id, at, consumer, slot, outcome, reason)
  select d.event_id, at, (l).consumer, outlast._inbox_slot(d.event_id), _seal_delivered.outcome, _seal_delivered.reason
  from unnest(ids) u join outlast._delivered d on d.consumer = (l).consumer and d.event_id = u
  where d.foreign_at is null
  on conflict do nothing;
  get diagnostics n = row_count;
  if n < cardinality(ids) then
    insert into outlast._foreign_event (consumer, event_id, at, emitted_at, outcome, reason)
    select (l).consumer, d.event_id, at, d.foreign_at, _seal_delivered.outcome, _seal_delivered.reason
    from unnest(ids) u join outlast._delivered d on d.consumer = (l).consumer and d.event_id = u
    where d.foreign_at is not null
    on conflict do nothing;
    get diagnostics m = row_count;
    if n + m < cardinality(ids) and not repeated then
      raise exception 'an event of the claim % was already sealed', (l).token using errcode = 'OL002';
    end if;
  end if;
  return n + m;
end $$;

-- Hands the first of these events over to parked, in this state, and on an ordered consumer the later ones of its key, which
-- come with it, behind it. Whole copies from the caller, who acks only when this has committed. Answers the copy of the first.
-- from: batch; to: retry, waiting-version, behind.
create or replace function outlast._hand_over(
  token uuid, envelopes jsonb, payloads bytea[], state text, class text, reason text) returns outlast._lease
language plpgsql volatile
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  l outlast._lease := outlast._prove(_hand_over.token);
  c outlast._consumer;
  k outlast._parked_key;
  e outlast._claimed;
  first boolean := true;
  at timestamptz := outlast.clock();
  now_state text := _hand_over.state;
begin
  if l.room <> 'delivered' then
    raise exception 'lease % is not of a delivery', token using errcode = 'OL003';
  end if;
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  select * into strict c from outlast._consumer x where x.id = l.consumer;
  for e in select x.* from outlast._copies(envelopes, payloads) x order by x.lane loop
    if first then
      if exists (select from outlast._sealed(l.consumer, array[e.event_id])) then
        raise exception 'event % was already sealed', e.event_id using errcode = 'OL002';
      end if;
      perform outlast._check_delivered(l, array[e.event_id]);
      if c.ordered and e.key is not null then
        select * into k from outlast._parked_key x
        where x.consumer = c.id and x.tenant = e.tenant and x.key = e.key for update;
        if k.key is null then
          insert into outlast._parked_key (consumer, tenant, key, leader, since) values (c.id, e.tenant, e.key, e.event_id, at);
        elsif k.leader <> e.event_id and not exists (
          select from outlast._parked p where p.consumer = c.id and p.event_id = k.leader) then
          -- He who led was before it in this very claim, and is done.
          update outlast._parked_key x set leader = e.event_id where x.consumer = c.id and x.tenant = k.tenant and x.key = k.key;
        elsif k.leader <> e.event_id then
          now_state := 'behind';
        end if;
      end if;
    else
      continue when not exists (
          select from outlast._delivered d where d.consumer = c.id and d.event_id = e.event_id and d.token = l.token)
        or exists (select from outlast._sealed(c.id, array[e.event_id]));
      now_state := 'behind';
    end if;
    insert into outlast._parked (consumer, event_id, log_id, state, class, failures, reason, signature, next_at,
      parked_at, changed_at, schema_version, emitted_at, aggregate_version, key_seq, correlation_id, causation_id, type,
      tenant, key, source, subject, actor, traceparent, content_type, codec_key, headers, payload, foreign_id)
    select c.id, e.event_id, coalesce(d.log_id, e.log_id, nextval('outlast._arrival')), now_state,
      case when first then _hand_over.class else 'behind' end, 0,
      case when first then _hand_over.reason else 'an earlier event of its key is parked' end, null,
      case when now_state = 'retry' then at end, at, at, e.schema_version, e.emitted_at, e.aggregate_version, e.key_seq,
      e.correlation_id, e.causation_id, e.type, e.tenant, e.key, e.source, e.subject, e.actor, e.traceparent, e.content_type,
      e.codec_key, e.headers, e.payload, d.foreign_at is not null
    from outlast._delivered d where d.consumer = c.id and d.event_id = e.event_id
    on conflict do nothing;
    if found and now_state = 'behind' then
      perform outlast._count_behind(c.id, array[row(null, null, e.event_id, e.tenant, e.key)::outlast._keyed]);
    end if;
    first := false;
  end loop;
  return l;
end $$;

-- What became of a delivered event whose handler failed: as `_fail`, with the copy that the retry will run.
-- from: batch; to: retry, quarantined, behind.
create or replace function outlast._fail_delivered(
  token uuid, envelopes jsonb, payloads bytea[], class text, reason text, after_ms bigint, charged boolean) returns text
language plpgsql volatile
as $$
declare
  id uuid := (envelopes -> 0 ->> 'id')::uuid;
begin
  perform outlast._check_class(id, _fail_delivered.class);
  return outlast._failed(
    outlast._hand_over(token, envelopes, payloads, 'retry', class, outlast._clean(reason)), id, class, outlast._clean(reason), after_ms, charged);
end $$;

-- Parks a delivered event that this process cannot read yet, without a charge.
-- from: batch; to: waiting-version, behind.
create or replace function outlast._wait_delivered(token uuid, envelopes jsonb, payloads bytea[]) returns void
language plpgsql volatile
as $$
begin
  perform outlast._hand_over(token, envelopes, payloads, 'waiting-version', 'waiting-version',
    'no worker with a handler for this type and version');
end $$;

-- Ends a lease that has lapsed, with all that was delivered under it: what is neither sealed nor parked waits for the broker
-- to deliver it again. Neither lock waits: a seal in progress keeps its lease.
create or replace function outlast._lapse(token uuid) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  l outlast._lease;
begin
  if not pg_try_advisory_xact_lock(outlast._lease_lock(_lapse.token)) then return false; end if;
  select * into l from outlast._lease x where x.token = _lapse.token and outlast._lapsed(x.expires_at) for update skip locked;
  if l.token is null then return false; end if;
  perform outlast._end(l);
  return true;
end $$;

-- Gives to the retry what was taken over whole and is not done, because the broker does not deliver it again: who leads his key
-- is due at once, others of it wait behind him. Uncharged: who kills his worker is found out by the retry.
-- from: batch; to: retry, behind.
create or replace function outlast._park_kept(consumer int, ids uuid[]) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  a outlast._arrived[];
  envelopes jsonb;
  payloads bytea[];
begin
  select array_agg(row(k.n, k.event_id, k.token, case when k.leads then 'lost' else 'behind' end, null, k.lapses, k.suspect,
                       k.foreign_at, k.tenant, k.key, k.log_id)::outlast._arrived order by k.n),
         jsonb_agg(k.envelope order by k.n), array_agg(k.payload order by k.n)
  into a, envelopes, payloads
  from (
    select d.*, (row_number() over (order by d.log_id, d.event_id))::int as n,
           d.key is null or exists (
             select from outlast._parked_key p
             where p.consumer = d.consumer and p.tenant = d.tenant and p.key = d.key and p.leader = d.event_id) as leads
    from outlast._delivered d
    where d.consumer = _park_kept.consumer and d.event_id = any (ids) and d.envelope is not null) k;
  if a is null then return; end if;
  select * into strict c from outlast._consumer x where x.id = _park_kept.consumer;
  perform outlast._park_arrived(c, a, envelopes, payloads, null);
end $$;

-- The end of what was delivered under a lease that this transaction has taken. Answers how many events are neither sealed nor
-- parked. What was taken over whole is parked then. Those of a lost owner stay known: which of them had started, how often that happened. So does what holds a key:
-- nothing later of it may run before.
create or replace function outlast._end_delivered(l outlast._lease, lost boolean) returns int
language plpgsql volatile
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  ids uuid[] := array(select d.event_id from outlast._delivered d where d.token = (l).token order by d.event_id);
  done uuid[] := array(select * from outlast._sealed((l).consumer, ids));
  parked uuid[] := array(select p.event_id from unnest(ids) u join outlast._parked p on p.consumer = (l).consumer and p.event_id = u);
  rest uuid[] := array(select u from unnest(ids) u where u <> all (done) and u <> all (parked));
  started uuid[];
  k outlast._parked_key;
  heir uuid;
begin
  -- Sealed and parked may have committed side by side: then it is done.
  perform outlast._unpark(p.consumer, p.event_id)
  from (select p.consumer, p.event_id from outlast._parked p
        where p.consumer = (l).consumer and p.event_id = any (parked) and p.event_id = any (done) and p.token is null
        order by p.tenant, p.key, p.log_id) p;
  if lost and cardinality(rest) > 0 then
    started := array(select u from outlast._started s, unnest(s.ids) u where s.token = (l).token);
    update outlast._delivered d
    set suspect = d.suspect or d.lapses > 0 and d.event_id = any (started), lapses = d.lapses + 1
    where d.token = (l).token and d.event_id = any (rest);
  end if;
  for k in
    select x.* from outlast._parked_key x
    where x.consumer = (l).consumer and x.leader in (select d.event_id from outlast._delivered d where d.token = (l).token and d.key is not null)
    order by x.tenant, x.key for update
  loop
    continue when exists (select from outlast._parked p where p.consumer = k.consumer and p.event_id = k.leader);
    select d.event_id into heir from outlast._delivered d
    where d.token = (l).token and d.tenant = k.tenant and d.key = k.key and d.event_id = any (rest) order by d.log_id limit 1;
    if heir is not null then
      update outlast._parked_key x set leader = heir where x.consumer = k.consumer and x.tenant = k.tenant and x.key = k.key;
    else
      perform outlast._release(k.consumer, k.leader);
    end if;
  end loop;
  perform outlast._park_kept((l).consumer, rest);
  update outlast._delivered d set token = null, since = outlast.clock()
  where d.token = (l).token and d.event_id = any (rest) and d.envelope is null and (lost or d.key is not null);
  delete from outlast._delivered d where d.token = (l).token;
  delete from outlast._started s where s.token = (l).token;
  return cardinality(rest);
end $$;
