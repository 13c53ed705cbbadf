-- How a batch ends: only here, only by what the tables say. What a handler returned is not believed.

-- Ends the batches of these tokens. Waits for every open seal under them; then, in a new statement, parks what is
-- neither sealed nor parked, deletes the lease and the batch row that nobody needs any more, in one commit.
-- Answers how many events of each were left over; a token that is gone gets no row.
create or replace function outlast._finish(
  tokens uuid[], process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null)
returns table (token uuid, leftovers int)
language plpgsql volatile
set jit = off
set lock_timeout = '8s'                          -- below the client's own patience: nobody waits on after he has left
as $$
#variable_conflict use_column
declare
  l outlast._lease;
  t uuid;
begin
  perform outlast._check_isolation();
  foreach t in array array(select u from unnest(tokens) u order by u) loop
    l := outlast._take(t);
    if l.token is null then continue; end if;
    token := t;
    leftovers := outlast._end(l);
    return next;
  end loop;
  if process is not null then
    perform outlast._remember(process, seq, nonce, acked);
  end if;
end $$;

-- The last seals of a batch and its end, in one commit: in a trickle of events that is one commit of three.
create or replace function outlast._seal_and_finish(
  token uuid, ids uuid[], repeated boolean,
  process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null)
returns int
language plpgsql volatile
set jit = off
set lock_timeout = '8s'
as $$
declare
  l outlast._lease;
  n int := 0;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform outlast._check_isolation();
  end if;
  -- The locks of an end first. Two that each hold the shared lock of a seal and want the exclusive one never end.
  l := outlast._take(token);
  if l.token is null then perform outlast._prove(token); end if;         -- which says that it is lost
  if repeated or not outlast._end_whole(l, ids) then
    n := outlast._write_seals(l, ids, repeated, alone => true);
    n := outlast._end(l, case when repeated then 0 else n end, outlast._ids_xor(ids));
  end if;
  if process is not null then
    perform outlast._remember(process, seq, nonce, acked);
  end if;
  return n;
end $$;

-- The seals and the end of a batch, if these are all of its events and nothing of it is parked: as _write_seals and _end, in as
-- few statements as can be. Answers false, and has done nothing, where that is not so.
create or replace function outlast._end_whole(l outlast._lease, ids uuid[]) returns boolean
language plpgsql volatile
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  of_id int := l.consumer;
  of_lane int := l.lane;
  of_seq bigint := l.seq;
  ends record;
  slots smallint[];
begin
  -- Only what was reclaimed, or given back, has marks of what has started.
  if l.room <> 'batch' or l.reclaims > 0 or l.expires_at = 'epoch' or l.events is distinct from cardinality(ids)
    or l.ids_xor is distinct from outlast._ids_xor(ids) then
    return false;
  end if;
  slots := outlast._inbox_slots(ids);
  if cardinality(slots) > 1 then return false; end if;
  -- The newest row of its lane stays: the lane stands there. Of a side lane only a look at its main lane tells.
  select of_lane < 1024 and not exists (
           select from outlast._batch y where y.consumer = of_id and y.lane = of_lane and y.seq > of_seq) as is_place,
         exists (select from outlast._parked p where p.consumer = of_id and p.event_id = any (ids)) as has_parked
  into ends;
  if ends.has_parked then return false; end if;
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if cardinality(ids) = 1 then
    insert into outlast._processed_event (event_id, at, consumer, slot, outcome) values (ids[1], outlast.clock(), of_id, slots[1], 'd');
  else
    insert into outlast._processed_event (event_id, at, consumer, slot, outcome)
    select u, outlast.clock(), of_id, slots[1], 'd' from unnest(ids) u;
  end if;
  if not ends.is_place then
    delete from outlast._batch x
    where x.consumer = of_id and x.lane = of_lane and x.seq = of_seq and (of_lane < 1024 or not outlast._is_place(x));
  end if;
  delete from outlast._lease x where x.token = l.token;
  return true;
end $$;

-- The end of one lease that this transaction has taken. A key that its event has led is handed on, if that is complete.
-- from: batch, retry; to: retry, quarantined, behind, done.
--
-- Nothing is left of a batch when what was sealed under this very lease, here and in earlier commits, is as many events as
-- it was claimed with, and the same ones: rows that are there, not what anybody said. Else its window is read once more.
create or replace function outlast._end(l outlast._lease, sealed int default 0, sealed_xor bigint default 0) returns int
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  b outlast._batch;
  done uuid[];                                   -- parked since it was claimed, then of these what is sealed
  n int := 0;
  whole boolean;
begin
  if (l).room = 'batch' then
    select * into strict b from outlast._batch x
    where x.consumer = (l).consumer and x.lane = (l).lane and x.seq = (l).seq;
    select b.events = _end.sealed + coalesce(sum(f.events), 0)
      and (l).ids_xor = case when _end.sealed > 0 then _end.sealed_xor else 0 end # coalesce(bit_xor(f.ids_xor), 0)
    into whole from outlast._flush f where f.token = (l).token;
    if whole is not true then
      n := outlast._park(
        b, array(select row(f.slot, f.id, f.event_id, null, null, null)::outlast._found from outlast._left(b) f),
        'unsealed', 'the handler returned and neither sealed nor failed it');
    end if;
    -- Sealed and parked may have committed side by side: then it is done, and nobody has to look at it.
    done := array(select * from outlast._recently_parked(b.consumer, b.claimed_at));
    if cardinality(done) > 0 then
      done := array(select * from outlast._sealed(b.consumer, done));
    end if;
    if cardinality(done) > 0 then
      perform outlast._unpark(b.consumer, p.event_id)
      from (select p.event_id from outlast._parked p
            where p.consumer = b.consumer and p.event_id = any (done) and p.token is null
            order by p.tenant, p.key, p.log_id) p;
    end if;
    delete from outlast._batch x
    where x.consumer = b.consumer and x.lane = b.lane and x.seq = b.seq and not outlast._is_place(x);
    delete from outlast._started s where s.token = (l).token;
    delete from outlast._flush f where f.token = (l).token;
  elsif (l).room = 'parked' then
    -- Inbox first: sealed and parked may have committed side by side, and then it is done.
    delete from outlast._parked p
    where p.consumer = (l).consumer and p.event_id = (l).event_id
      and exists (select from outlast._sealed((l).consumer, array[(l).event_id]));
    update outlast._parked p
    set token = null, class = 'unsealed', failures = p.failures + 1, changed_at = outlast.clock(),
        reason = 'the handler returned and neither sealed nor failed it',
        state = case when p.failures + 1 >= c.attempts then 'quarantined' else 'retry' end,
        next_at = case when p.failures + 1 < c.attempts then outlast.clock() + outlast._backoff(p.failures + 1) end
    from outlast._consumer c
    where c.id = p.consumer and p.consumer = (l).consumer and p.event_id = (l).event_id and p.token = (l).token;
    get diagnostics n = row_count;
    perform outlast._release((l).consumer, (l).event_id);
  elsif (l).room = 'delivered' then
    n := outlast._end_delivered(l, outlast._lapsed((l).expires_at));
  end if;
  delete from outlast._lease x where x.token = (l).token;
  return n;
end $$;

-- Takes over batches of this consumer whose lease lapsed and that are not done. The ids that were marked as started and
-- are unsealed are suspects: from the second reclaim on they leave the batch and run alone. The rest is handed out under
-- a new token. Then, if asked, ends what is lapsed and done.
create or replace function outlast._reclaim(
  consumer int, lease_ms int, batches int,
  process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null,
  holder text default null, sweep boolean default true)
returns setof outlast._claimed
language plpgsql volatile
set jit = off
as $$
#variable_conflict use_column
declare
  t uuid;
  l outlast._lease;
  b outlast._batch;
  taken int := 0;
  suspects uuid[];
  rest outlast._found[];
  fresh uuid;
  remembered boolean := process is null;
begin
  perform outlast._check_isolation();
  perform outlast._check_running(consumer);
  for t in
    select x.token from outlast._in_work(_reclaim.consumer) x
    where outlast._lapsed(x.expires_at)
      and exists (select from outlast._consumer c where c.id = x.consumer and c.state = 'active')
    order by x.expires_at
  loop
    exit when taken >= batches;
    -- A seal in progress keeps its batch, and only its own: the next one in the list is tried. Neither lock waits, so
    -- their order is free here, and this one takes no transaction id for a lease that is not to be had.
    continue when not pg_try_advisory_xact_lock(outlast._lease_lock(t));
    continue when not exists (
      select from outlast._lease x
      join outlast._batch y on (y.consumer, y.lane, y.seq) = (x.consumer, x.lane, x.seq)
      cross join lateral outlast._left(y)
      where x.token = t);
    select * into l from outlast._lease x
    where x.token = t and outlast._lapsed(x.expires_at) for update skip locked;
    continue when not found;
    select * into strict b from outlast._batch x
    where x.consumer = l.consumer and x.lane = l.lane and x.seq = l.seq;
    select array_agg(row(f.slot, f.id, f.event_id, null, null, null)::outlast._found order by f.id) into rest
    from outlast._left(b) f;
    if l.reclaims > 0 and rest is not null then
      select array_agg(f.event_id) into suspects
      from unnest(rest) f
      where f.event_id in (select unnest(s.ids) from outlast._started s where s.token = l.token);
      if suspects is not null then
        perform outlast._park(b,
          array(select f from unnest(rest) f where f.event_id = any (suspects)), 'crashed',
          'the worker died while this event ran');
        -- Behind one of them go all later ones of its key.
        select array_agg(row(f.slot, f.id, f.event_id, null, null, null)::outlast._found order by f.id) into rest
        from outlast._left(b) f;
      end if;
    end if;
    if rest is null then
      perform outlast._end(l);
      continue;
    end if;
    taken := taken + 1;
    fresh := gen_random_uuid();
    delete from outlast._started s where s.token = l.token;
    delete from outlast._flush f where f.token = l.token;
    delete from outlast._lease x where x.token = l.token;
    insert into outlast._lease (token, room, consumer, lane, seq, reclaims, process, holder, expires_at)
    values (fresh, 'batch', l.consumer, l.lane, l.seq, l.reclaims + 1, _reclaim.process, _reclaim.holder,
            outlast.clock() + make_interval(secs => lease_ms / 1000.0));
    if not remembered then
      perform outlast._remember(process, seq, nonce, acked);
      remembered := true;
    end if;
    return query
      select fresh, e.event_id, e.id, e.type, e.schema_version::int, e.tenant, e.key, e.actor, e.correlation_id,
             e.causation_id, e.traceparent, e.headers, e.source, e.subject, e.aggregate_version, e.content_type,
             e.codec_key, e.payload, e.emitted_at, 2 + l.reclaims, 1 + l.reclaims, l.lane, e.key_seq
      from outlast._events(array(select f.slot from unnest(rest) f), array(select f.id from unnest(rest) f)) e
      order by e.id;
  end loop;
  if sweep then
    perform outlast._sweep(consumer, null);
  end if;
end $$;

-- Ends the leases of this consumer whose work is done: lapsed ones, and those of this holder (in SQL a caller has no
-- other moment for it). What is done stays done, so it is looked at before anything is locked.
create or replace function outlast._sweep(consumer int, holder text) returns void
language plpgsql volatile
set enable_seqscan = off                         -- a heap that was long once stays so
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  l outlast._lease;
begin
  for l in
    select * from (
      select * from outlast._in_work(_sweep.consumer)
      union all
      select * from outlast._lease y where y.room = 'parked' and y.consumer = _sweep.consumer and y.lane is null
      union all
      select * from outlast._lease y where y.room = 'delivered' and y.consumer = _sweep.consumer and y.lane is null) x
    where x.holder = _sweep.holder or outlast._lapsed(x.expires_at)
  loop
    if l.room = 'delivered' then
      perform outlast._lapse(l.token);
      continue;
    end if;
    continue when l.room = 'batch' and exists (
      select from outlast._batch x cross join lateral outlast._left(x)
      where x.consumer = l.consumer and x.lane = l.lane and x.seq = l.seq);
    continue when l.room = 'parked' and exists (
      select from outlast._parked p where p.consumer = l.consumer and p.event_id = l.event_id and p.token = l.token);
    continue when not pg_try_advisory_xact_lock(outlast._lease_lock(l.token));
    perform from outlast._lease x where x.token = l.token for update skip locked;
    continue when not found;
    perform outlast._end(l);
  end loop;
  -- It takes as long as a claim, and a caller in SQL is here at each of his.
  if holder is null or random() < 0.01 then
    perform outlast._raise_floors(consumer);
  end if;
end $$;
