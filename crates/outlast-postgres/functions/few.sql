-- The claim, and how it is made in a trickle: what one event after the other costs.

-- One batch, or several; see _claim_in_general. Two kinds of claims are made here, because they are nearly all there are of a
-- consumer of one lane and everybody's events, while nobody has stopped anything: the one of a few new events, when everything
-- else is done, and the next page of a side lane's backlog. The batches are the same.
--
-- A statement of PL/pgSQL costs its preparation in every transaction, a composite value its packing each time it is handed on, a
-- function its settings, a partitioned table all of its leaves. So this is one function of few statements.
create or replace function outlast._claim(
  consumer int, n int, max_bytes bigint, max_scan int, lease_ms int, max_lanes int,
  process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null,
  holder text default null, side_lanes int default null)
returns setof outlast._claimed
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  locked boolean;
  few boolean := false;
  p record;
  q record;
  t outlast._tick;
  e record;
  s smallint;
  slots smallint[];
  token uuid := gen_random_uuid();
  at timestamptz := outlast.clock();
  up bigint;
  base bigint;
  visible pg_snapshot;
  first bigint;
  events int := 0;
  ids_xor bigint := 0;
  bytes bigint := 0;
begin
  if pg_current_xact_id_if_assigned() is null and not pg_is_in_recovery()
    and current_setting('transaction_isolation') = 'read committed' then
    locked := pg_try_advisory_xact_lock(outlast._lane_lock(_claim.consumer, 0));
    if not locked and not (select c.ordered from outlast._consumer c where c.id = _claim.consumer) then
      perform pg_advisory_xact_lock(outlast._lane_lock(_claim.consumer, 0));
      locked := true;
    end if;
  end if;
  if locked then
    -- Its place, in a statement after the lock of its lane; and its types, which whoever adds one changes under that lock, too.
    -- Whoever is not settled may have stragglers below its place.
    select x.seq, x.hi, x.b, (x.b).at as since, x.parts, x.sides, x.claimed_at,
      x.hi >= (x.b).hi and (x.b).open is null and (x.b).young is null as settled,
      array(select case when y.since is null and y.type not like '%*' then y.type end
            from outlast._consumer_type y where y.consumer = _claim.consumer) as types,
      (select h.stopped is null and h.held is null and c.state = 'active' and not c.ordered and c.tenants is null and c.sources is null
         and pg_relation_filepath('outlast._house'::regclass) like '%/' || h.database_oid || '/%'
       from outlast._consumer c, outlast._house h where c.id = _claim.consumer) as usual
    into p
    from outlast._batch x where x.consumer = _claim.consumer and x.lane = 0 order by x.seq desc limit 1;
    if p.usual and p.sides is null then
      if p.settled and max_lanes > 0 then
        up := coalesce(pg_sequence_last_value('outlast._event_id'), 0);
        if up = p.hi then return; end if;
        few := up > p.hi and up <= p.hi + least(n, 64);
      end if;
    elsif p.usual and coalesce(side_lanes, max_lanes) > 0 and array_position(p.types, null) is null then
      -- The lane whose turn it is, if that is a side lane which stands in the midst of what its window holds above all stragglers.
      select x.*, (x.a).at as since, (x.b).at as until, (x.b).hi as most, (x.b).base as base, (x.b).snap as snap into q
      from unnest(p.sides) l (lane)
      cross join lateral (
        select * from outlast._batch x where x.consumer = _claim.consumer and x.lane = l.lane order by x.seq desc limit 1) x
      order by x.claimed_at, x.lane limit 1;
      -- The main lane has its turn before it, if it may find something.
      slots := case when q.hi >= (q.a).hi and q.hi < q.most and cardinality(q.tenants) <= 8
                 and (max_lanes < 1 or q.claimed_at < p.claimed_at
                      or p.settled and coalesce(pg_sequence_last_value('outlast._event_id'), 0) = p.hi)
               then outlast._log_slots(q.since, q.until) end;
      if cardinality(slots) = 1 then
        up := least(q.most, q.hi + max_scan);
        base := q.base;
        visible := q.snap;
        select f.events, f.first, f.last, f.ids_xor, f.bytes into e
        from outlast._leaf_page(slots[1], q.hi, up, n, p.types, q.tenants, base, visible) f;
        if e.events > 0 and e.bytes <= max_bytes then
          -- A full page left some behind: the batch ends with its last event.
          if e.events >= n then up := e.last; end if;
          insert into outlast._batch (consumer, lane, seq, a, b, lo, hi, events, claimed_at, parts, tenants)
          values (_claim.consumer, q.lane, q.seq + 1, q.a, q.b, e.first - 1, up, e.events, at, q.parts, q.tenants);
          delete from outlast._batch x
          where x.consumer = _claim.consumer and x.lane = q.lane and x.seq between q.seq - 20 and q.seq
            and not exists (select from outlast._lease z
                            where z.consumer = _claim.consumer and z.lane = q.lane and z.seq = x.seq offset 0);
          if current_setting('synchronous_commit') in ('off', 'local') then
            perform set_config('synchronous_commit', 'on', true);
          end if;
          if process is not null then
            perform outlast._remember(process, seq, nonce, acked);
          end if;
          insert into outlast._lease (token, room, consumer, lane, seq, process, holder, events, ids_xor, expires_at)
          values (token, 'batch', _claim.consumer, q.lane, q.seq + 1, process, holder, e.events, e.ids_xor, at + make_interval(secs => lease_ms / 1000.0));
          return query
            select token, x.event_id, x.id, x.type, x.schema_version::int, x.tenant, x.key, x.actor, x.correlation_id,
                   x.causation_id, x.traceparent, x.headers, x.source, x.subject, x.aggregate_version, x.content_type,
                   x.codec_key, x.payload, x.emitted_at, 1, 0, q.lane, x.key_seq
            from outlast._event x
            where x.slot = slots[1] and x.id >= e.first and x.id <= e.last
              and (x.id <= base or pg_visible_in_snapshot(x.xid, visible))
              and x.type = any (p.types) and x.tenant = any (q.tenants)
            order by x.id;
          return;
        end if;
      end if;
    end if;
  end if;
  if few is not true then
    return query select f.* from outlast._claim_in_general(
      _claim.consumer, n, max_bytes, max_scan, lease_ms, max_lanes, process, seq, nonce, acked, holder, side_lanes) f;
    return;
  end if;

  t := outlast._tick(p.b);
  base := t.base;
  visible := t.snap;
  up := least(t.hi, p.hi + n);
  <<leaves>>
  foreach s in array outlast._log_slots(p.since, t.at) loop
    for e in
      select x.* from outlast._leaf_rows(s, p.hi, up) x
      where (x.id <= base or pg_visible_in_snapshot(x.xid, visible))
        and (x.type = any (p.types)
             -- A pattern, or a type that counts from some time on.
             or array_position(p.types, null) > 0 and outlast._counts(_claim.consumer, x.type, x.id, x.xid))
    loop
      bytes := bytes + octet_length(e.payload);
      if bytes > max_bytes and first is not null then
        up := e.id - 1;
        exit leaves;
      end if;
      first := coalesce(first, e.id);
      events := events + 1;
      ids_xor := ids_xor # outlast._id_hash(e.event_id);
      return next row(token, e.event_id, e.id, e.type, e.schema_version::int, e.tenant, e.key, e.actor, e.correlation_id,
        e.causation_id, e.traceparent, e.headers, e.source, e.subject, e.aggregate_version, e.content_type,
        e.codec_key, e.payload, e.emitted_at, 1, 0, 0, e.key_seq)::outlast._claimed;
    end loop;
  end loop;

  -- As _stand does.
  insert into outlast._batch (consumer, lane, seq, a, b, lo, hi, events, claimed_at, parts)
  values (_claim.consumer, 0, p.seq + 1, p.b, t, coalesce(first - 1, up), up, events, at, p.parts);
  delete from outlast._batch x
  where x.consumer = _claim.consumer and x.lane = 0 and x.seq between p.seq - 20 and p.seq
    and not exists (select from outlast._lease z
                    where z.consumer = _claim.consumer and z.lane = 0 and z.seq = x.seq offset 0);
  if first is null then
    -- Nothing of it is this consumer's. A row without a token: there may be more.
    if up < t.hi then return next null; end if;
    return;
  end if;
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if process is not null then
    perform outlast._remember(process, seq, nonce, acked);
  end if;
  insert into outlast._lease (token, room, consumer, lane, seq, process, holder, events, ids_xor, expires_at)
  values (token, 'batch', _claim.consumer, 0, p.seq + 1, process, holder, events, ids_xor, at + make_interval(secs => lease_ms / 1000.0));
end $$;
