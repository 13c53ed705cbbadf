-- The claim of a trickle: what one event after the other costs. The same batch as _claim makes in general, for the consumer
-- that is the usual one (one lane, everybody's events) and has done all but a few new ones, without lists of places.

-- Which claims are of this kind. Under the lock of the lane: null where it is not; else how many ids are new, at most.
create or replace function outlast._few(c outlast._consumer, most int) returns bigint
language plpgsql volatile
as $$
declare
  place_hi bigint;
begin
  -- Whoever is not settled may have stragglers below its place.
  select case when x.sides is null and x.hi >= (x.b).hi and (x.b).open is null and (x.b).young is null then x.hi end into place_hi
  from outlast._batch x
  where x.consumer = (c).id and x.lane = 0 order by x.seq desc limit 1;
  if place_hi is null then return null; end if;
  place_hi := coalesce(pg_sequence_last_value('outlast._event_id'), 0) - place_hi;
  return case when place_hi <= most then place_hi end;
end $$;

-- A batch of what is new. Takes its own tick. Answers as _claim does.
create or replace function outlast._claim_few(
  c outlast._consumer, n int, max_bytes bigint, lease_ms int, process uuid, seq bigint, nonce uuid, acked bigint, holder text)
returns setof outlast._claimed
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  p outlast._batch;
  t outlast._tick;
  e outlast._event;
  s smallint;
  token uuid := gen_random_uuid();
  at timestamptz := outlast.clock();
  of_id int := (c).id;
  from_id bigint;
  up bigint;
  base bigint;
  visible pg_snapshot;
  types text[];
  patterns text[];
  late boolean;
  ids uuid[] := '{}';
  first bigint;
  bytes bigint := 0;
begin
  select * into strict p from outlast._batch x where x.consumer = of_id and x.lane = 0 order by x.seq desc limit 1;
  t := outlast._tick(p.b);
  from_id := p.hi;
  base := t.base;
  visible := t.snap;
  up := least(t.hi, from_id + n);
  select array_agg(y.type) filter (where y.since is null and y.type not like '%*'),
         array_agg(outlast._like(y.type)) filter (where y.since is null and y.type like '%*'),
         bool_or(y.since is not null)
  into types, patterns, late
  from outlast._consumer_type y where y.consumer = of_id;
  <<slots>>
  foreach s in array outlast._log_slots((p.b).at, t.at) loop
    for e in
      select x.* from outlast._event x
      where x.slot = s and x.id > from_id and x.id <= up
        and (x.id <= base or pg_visible_in_snapshot(x.xid, visible))
        and (x.type = any (types) or x.type like any (patterns) or late and outlast._counts(of_id, x.type, x.id, x.xid))
      order by x.id
    loop
      bytes := bytes + octet_length(e.payload);
      if bytes > max_bytes and first is not null then
        up := e.id - 1;
        exit slots;
      end if;
      first := coalesce(first, e.id);
      ids := ids || e.event_id;
      return next row(token, e.event_id, e.id, e.type, e.schema_version::int, e.tenant, e.key, e.actor, e.correlation_id,
        e.causation_id, e.traceparent, e.headers, e.source, e.subject, e.aggregate_version, e.content_type,
        e.codec_key, e.payload, e.emitted_at, 1, 0, 0, e.key_seq)::outlast._claimed;
    end loop;
  end loop;

  -- As _stand does.
  insert into outlast._batch (consumer, lane, seq, a, b, lo, hi, events, claimed_at, parts)
  values (of_id, 0, p.seq + 1, p.b, t, coalesce(first - 1, up), up, cardinality(ids), at, p.parts);
  delete from outlast._batch x where x.ctid = any (array(
    select y.ctid
    from (select x.ctid, x.seq from outlast._batch x
          where x.consumer = of_id and x.lane = 0 and x.seq between p.seq - 20 and p.seq order by x.seq offset 0) y
    where not exists (select from outlast._lease z
                      where z.room = 'batch' and z.consumer = of_id and z.lane = 0 and z.seq = y.seq offset 0)));
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
  insert into outlast._lease (token, room, consumer, lane, seq, process, holder, ids_xor, expires_at)
  values (token, 'batch', of_id, 0, p.seq + 1, process, holder, outlast._ids_xor(ids), at + make_interval(secs => lease_ms / 1000.0));
end $$;
