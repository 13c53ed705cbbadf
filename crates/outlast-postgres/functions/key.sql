-- The order of a key while one of its events is parked: later ones wait behind it and are let go one at a time.
--
-- Locks are taken in one order by everybody: the lease, then rows of _parked_key by (tenant, key), then parked rows. No
-- transaction of a user takes a row of _parked_key: `complete` only seals, and the key is handed on when the lease of
-- that try ends. So a handler that sits between its seal and its COMMIT holds up nobody, and one in REPEATABLE READ is
-- not refused because something was put behind it meanwhile.

-- Which keys these events belong to. A leaf at a time, as in _events.
create or replace function outlast._keyed(events outlast._found[]) returns setof outlast._keyed
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
as $$
declare
  s smallint;
  ids bigint[];
begin
  for s, ids in
    select f.slot, array_agg(f.id order by f.id) from unnest(events) f group by f.slot order by min(f.id) loop
    return query select e.slot, e.id, e.event_id, e.tenant, e.key from outlast._event e
      where e.slot = s and e.id >= ids[1] and e.id <= ids[cardinality(ids)] and e.id in (select unnest(ids))
      order by e.id;
  end loop;
end $$;

-- Holds the keys of these events that are parked, to the end of this transaction. What it answers is read after the wait:
-- a key that was released meanwhile is not in it.
create or replace function outlast._hold_keys(consumer int, events outlast._keyed[]) returns setof outlast._parked_key
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  return query
    select k.* from outlast._parked_key k
    where k.consumer = _hold_keys.consumer
      and (k.tenant, k.key) in (select e.tenant, e.key from unnest(events) e)
    order by k.tenant, k.key
    for update;
end $$;

-- Copies events of the log to parked: of one state, for one reason. Suspects and the uncharged are due at once.
create or replace function outlast._copy(
  consumer int, events outlast._keyed[], state text, class text, reason text, failures int) returns int
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  n int;
  at timestamptz := outlast.clock();
begin
  if coalesce(cardinality(events), 0) = 0 then return 0; end if;
  insert into outlast._parked (consumer, event_id, log_id, state, class, failures, crashes, reason, signature, next_at,
    parked_at, changed_at, schema_version, emitted_at, aggregate_version, key_seq, correlation_id, causation_id, type,
    tenant, key, source, subject, actor, traceparent, content_type, codec_key, headers, payload)
  select _copy.consumer, e.event_id, e.id, _copy.state, _copy.class, _copy.failures,
    case when _copy.class = 'crashed' then 1 else 0 end, _copy.reason, outlast._signature(e.type, _copy.class, _copy.reason),
    case when _copy.state <> 'retry' then null
         when _copy.failures = 0 or _copy.class = 'crashed' then at
         else at + outlast._backoff(_copy.failures) end,
    at, at, e.schema_version, e.emitted_at, e.aggregate_version, e.key_seq, e.correlation_id, e.causation_id, e.type,
    e.tenant, e.key, e.source, e.subject, e.actor, e.traceparent, e.content_type, e.codec_key, e.headers, e.payload
  from outlast._events(array(select f.slot from unnest(events) f), array(select f.id from unnest(events) f)) e
  on conflict do nothing;
  get diagnostics n = row_count;
  return n;
end $$;

-- Counts what was put behind, and says so on the key: this update is what the other one of parker and releaser sees.
create or replace function outlast._count_behind(consumer int, events outlast._keyed[]) returns void
language sql volatile
as $$
  update outlast._parked_key k
  set behind = k.behind + b.n, at_limit = k.behind + b.n >= c.behind_most
  from (select e.tenant, e.key, count(*)::int as n from unnest(events) e group by e.tenant, e.key) b, outlast._consumer c
  where k.consumer = _count_behind.consumer and k.tenant = b.tenant and k.key = b.key and c.id = _count_behind.consumer
$$;

-- Parks events of a batch. On an ordered consumer the first event of each of their keys that is left in the batch leads
-- it, and all later ones go behind in the same commit, whether they are among these or not. They have not started and
-- are not charged; suspects have. No lock is needed to find them: one batch is in flight in a lane, and it is ours.
-- Answers how many of `events` it has parked.
-- from: batch; to: retry, behind, quarantined, waiting-version.
create or replace function outlast._park(b outlast._batch, events outlast._found[], class text, reason text, failures int default 1)
returns int
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  state text := 'retry';
  given outlast._keyed[];
  rest outlast._keyed[];
  leaders uuid[];
begin
  if coalesce(cardinality(events), 0) = 0 then return 0; end if;
  select * into strict c from outlast._consumer x where x.id = (b).consumer;
  if class = 'waiting-version' then state := class; end if;
  -- One try was all it had.
  if class = 'unsealed' and c.attempts <= failures then state := 'quarantined'; end if;
  given := array(select row(f.slot, f.id, f.event_id, null, null)::outlast._keyed from unnest(events) f);
  if c.ordered then
    given := array(select k from outlast._keyed(events) k);
    if exists (select from unnest(given) g where g.key is not null) then
      rest := array(
        select k from outlast._keyed(array(
          select row(l.slot, l.id, l.event_id, null, null, null)::outlast._found from outlast._left(b) l)) k
        where (k.tenant, k.key) in (select g.tenant, g.key from unnest(given) g));
    end if;
  end if;
  if rest is null then
    return outlast._copy(c.id, given, state, class, reason, failures);
  end if;

  -- A key that is parked already keeps its leader; then all of these go behind.
  with first as (
    select distinct on (r.tenant, r.key) r.tenant, r.key, r.event_id from unnest(rest) r order by r.tenant, r.key, r.id
  ), held as (
    insert into outlast._parked_key as k (consumer, tenant, key, leader, since)
    select c.id, f.tenant, f.key, f.event_id, outlast.clock() from first f order by f.tenant, f.key
    on conflict (consumer, tenant, key) do update set behind = k.behind
    returning leader
  )
  select array_agg(h.leader) into leaders from held h;
  -- Read after the lock: somebody else may have failed an event of the same key meanwhile.
  rest := array(select r from unnest(rest) r where not exists (
    select from outlast._parked p where p.consumer = c.id and p.event_id = r.event_id));

  perform outlast._copy(c.id, array(
      select r from unnest(rest) r where r.event_id = any (leaders) and r.event_id in (select g.event_id from unnest(given) g)),
    state, class, reason, failures);
  perform outlast._copy(c.id, array(
      select r from unnest(rest) r where r.event_id = any (leaders) and r.event_id not in (select g.event_id from unnest(given) g)),
    'retry', 'behind', 'a later event of its key failed first', 0);
  if class = 'crashed' then
    perform outlast._copy(c.id, array(
        select r from unnest(rest) r where r.event_id <> all (leaders) and r.event_id in (select g.event_id from unnest(given) g)),
      'behind', class, reason, failures);
  end if;
  perform outlast._copy(c.id, array(select r from unnest(rest) r where r.event_id <> all (leaders)),
    'behind', 'behind', 'an earlier event of its key is parked', 0);
  perform outlast._count_behind(c.id, array(select r from unnest(rest) r where r.event_id <> all (leaders)));
  return (select count(*) from unnest(rest) r where r.event_id in (select g.event_id from unnest(given) g))
    + outlast._copy(c.id, array(select g from unnest(given) g where g.key is null), state, class, reason, failures);
end $$;

-- Of what a claim has found, what may be handed out: events whose key is parked go behind, in the claim's own commit.
-- Its keys are read before and again after the wait for their rows: one that is free by then is handled by the claim.
-- from: batch; to: behind.
create or replace function outlast._set_behind(c outlast._consumer, got outlast._found[]) returns outlast._found[]
language plpgsql volatile
set lock_timeout = '2s'                          -- nobody holds a key longer than a statement of ours takes
as $$
#variable_conflict use_column
declare
  late outlast._keyed[];
begin
  if not (c).ordered or coalesce(cardinality(got), 0) = 0
    or not exists (select from outlast._parked_key k where k.consumer = (c).id) then
    return got;
  end if;
  late := array(
    select e from outlast._keyed(got) e
    join outlast._parked_key k on k.consumer = (c).id and k.tenant = e.tenant and k.key = e.key);
  if cardinality(late) = 0 then return got; end if;
  late := array(
    select e from unnest(late) e
    where (e.tenant, e.key) in (select k.tenant, k.key from outlast._hold_keys((c).id, late) k));
  perform outlast._copy((c).id, late, 'behind', 'behind', 'an earlier event of its key is parked', 0);
  perform outlast._count_behind((c).id, late);
  return array(select g from unnest(got) g where g.event_id not in (select e.event_id from unnest(late) e) order by g.id);
end $$;

-- Hands a key on, if this event has led it and is parked no more: to the first behind, or to nobody, and then the key is
-- free. In a statement after the lock: a parker who had it before has put his event behind by then, and one who comes
-- later waits and finds out. Answers who leads now.
-- from: behind; to: retry, quarantined.
create or replace function outlast._release(consumer int, leader uuid) returns uuid
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  k outlast._parked_key;
  heir uuid;
  at timestamptz := outlast.clock();
begin
  select * into k from outlast._parked_key x
  where x.consumer = _release.consumer and x.leader = _release.leader for update;
  if k.key is null or exists (
    select from outlast._parked p where p.consumer = k.consumer and p.event_id = k.leader) then
    return null;
  end if;
  select p.event_id into heir from outlast._parked p
  where p.consumer = k.consumer and p.tenant = k.tenant and p.key = k.key and p.state = 'behind'
  order by p.log_id limit 1;
  if heir is null then
    delete from outlast._parked_key x where x.consumer = k.consumer and x.tenant = k.tenant and x.key = k.key;
    return null;
  end if;
  -- One that had failed before its turn came (out of order, by a caller in SQL) is judged by that now.
  update outlast._parked p
  set state = case when spent then 'quarantined' else 'retry' end, next_at = case when not spent then at end, changed_at = at
  from (select x.event_id, x.class = 'permanent' or x.failures >= c.attempts as spent
        from outlast._parked x join outlast._consumer c on c.id = x.consumer
        where x.consumer = k.consumer and x.event_id = heir) j
  where p.consumer = k.consumer and p.event_id = j.event_id;
  update outlast._parked_key x
  set leader = heir, behind = x.behind - 1, at_limit = x.behind - 1 >= c.behind_most
  from outlast._consumer c
  where c.id = x.consumer and x.consumer = k.consumer and x.tenant = k.tenant and x.key = k.key;
  return heir;
end $$;

-- Takes a parked event that is complete, or given up, out of parked, and hands its key on.
-- from: retry, behind, quarantined, waiting-version; to: done, skipped.
create or replace function outlast._unpark(consumer int, id uuid) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  was outlast._parked;
begin
  perform from outlast._parked_key k
  where k.consumer = _unpark.consumer
    and (k.tenant, k.key) = (select p.tenant, p.key from outlast._parked p
                             where p.consumer = _unpark.consumer and p.event_id = _unpark.id)
  for update;
  delete from outlast._parked p where p.consumer = _unpark.consumer and p.event_id = _unpark.id returning p.* into was;
  if was.state = 'behind' then
    update outlast._parked_key k set behind = k.behind - 1, at_limit = k.behind - 1 >= c.behind_most
    from outlast._consumer c
    where c.id = k.consumer and k.consumer = was.consumer and k.tenant = was.tenant and k.key = was.key;
  else
    perform outlast._release(consumer, id);
  end if;
end $$;
