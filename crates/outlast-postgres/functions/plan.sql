-- What retention costs, for people: never on the path of an event.

-- What each room holds now, at what rate it grows, and what it will hold at rest if that goes on. Rates are measured over
-- the newest 100,000 rows of at most a day; numbers of rows come from ids, bits and statistics: none is counted whole.
create or replace function outlast._retention_plan() returns table (
  room text, consumer text, stored bigint, bytes bigint, per_second float8, kept_s float8, stored_at_rest float8,
  bytes_at_rest float8, bytes_each float8)
language plpgsql stable
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  s smallint;
  e record;
  f record;
  c record;
  now_at timestamptz := outlast.clock();
  day_ago timestamptz := outlast.clock() - interval '1 day';
  log_rate float8;
  log_each float8;
  row_each float8;
  bit_each float8;
  kept float8;
begin
  -- The log: ids are drawn one by one; those of transactions that were rolled back count too.
  room := 'log';
  stored := 0;
  bytes := 0;
  for s in select x::smallint from generate_series(0, 15) x loop
    bytes := bytes + pg_total_relation_size(format('outlast._event_%s', s)::regclass);
    select r.id into e from outlast._last_row(s) r;
    select r.id into f from outlast._first_of_leaf(s) r;
    stored := stored + coalesce(e.id - f.id + 1, 0);
  end loop;
  select x.id, x.emitted_at into e from outlast._last_row(outlast._log_slot(now_at)) x;
  select x.id, x.emitted_at into f from outlast._first_row(coalesce(e.id, 0) - 100000) x
  where x.emitted_at >= day_ago;
  if f.id is null and e.id is not null then
    select x.id, x.emitted_at into f from outlast._first_of_leaf(outlast._log_slot(now_at)) x;
  end if;
  per_second := coalesce((e.id - f.id + 1) / greatest(1, extract(epoch from now_at - f.emitted_at)), 0);
  log_rate := per_second;
  -- Its window, the hour, and half a slot until the next pass finds it.
  kept_s := extract(epoch from outlast._setting_interval('retention.log')) + 1.5 * outlast._log_slot_s() + 3600;
  bytes_each := bytes / nullif(stored, 0)::float8;
  stored_at_rest := per_second * kept_s;
  bytes_at_rest := stored_at_rest * bytes_each;
  return next;

  -- Completions: as rows until their leaf is swept, as bits until it is emptied.
  select sum(pg_total_relation_size(format('outlast._processed_event_%s', x)::regclass)), nullif(sum(greatest(k.reltuples, 0)), 0)
  into e from generate_series(0, 15) x join pg_catalog.pg_class k on k.oid = format('outlast._processed_event_%s', x)::regclass;
  row_each := case when e.nullif > 1000 then e.sum / e.nullif else 174 end;
  select coalesce(sum(f.completed), 0) as n into f from outlast._folded f;
  bit_each := case when f.n > 8192 then pg_total_relation_size('outlast._folded') / f.n::float8 end;
  for c in select x.id, x.name from outlast._consumer x order by x.name loop
    consumer := c.name;
    room := 'inbox, rows';
    stored := 0;
    select count(*) as n, extract(epoch from now_at - min(outlast._v7_time(q.event_id))) as over_s into e
    from (
      select p.event_id from unnest(outlast._inbox_slots(day_ago, now_at)) u (slot)
      cross join lateral (
        select p.event_id from outlast._processed_event p
        where p.slot = u.slot and p.consumer = c.id and p.event_id >= outlast._v7_first(day_ago)
        order by p.event_id desc limit 100000) p
      order by p.event_id desc limit 100000) q;
    per_second := coalesce(e.n / greatest(1, e.over_s), 0);
    stored := outlast._inbox_rows(c.id);
    bytes := (stored * row_each)::bigint;
    kept_s := 1.5 * outlast._inbox_slot_s() + outlast._log_slot_s() + extract(epoch from outlast._setting_interval('retention.fold_after')) + 3600;
    bytes_each := row_each;
    stored_at_rest := per_second * kept_s;
    bytes_at_rest := stored_at_rest * bytes_each;
    return next;
    room := 'inbox, bits';
    kept := extract(epoch from outlast._setting_interval('retention.inbox')) + 1.5 * outlast._inbox_slot_s() + 3600;
    select coalesce(sum(f.completed), 0), coalesce(sum(pg_column_size(f.*)), 0) into stored, bytes from outlast._folded f where f.consumer = c.id;
    kept_s := kept;
    -- A range has 8,192 bits whatever is set of them: one kilobyte for as many events of anybody.
    bytes_each := coalesce(bytes / nullif(stored, 0)::float8, bit_each, 1160 / 8192.0 * greatest(1, log_rate / nullif(per_second, 0)));
    stored_at_rest := per_second * kept_s;
    bytes_at_rest := stored_at_rest * bytes_each;
    return next;
    room := 'parked';
    select count(*), coalesce(sum(pg_column_size(p.*)), 0) into stored, bytes from outlast._parked p where p.consumer = c.id;
    per_second := null;
    kept_s := null;
    stored_at_rest := null;
    bytes_at_rest := null;
    bytes_each := bytes / nullif(stored, 0)::float8;
    return next;
  end loop;

  room := 'keys';
  consumer := null;
  select greatest(k.reltuples, 0)::bigint into stored from pg_catalog.pg_class k where k.oid = 'outlast._dedup'::regclass;
  bytes := pg_total_relation_size('outlast._dedup');
  select count(*) as n, extract(epoch from now_at - min(q.taken_at)) as over_s into e
  from (select d.taken_at from outlast._dedup d where d.taken_at >= day_ago order by d.taken_at desc limit 100000) q;
  stored := greatest(stored, e.n);
  per_second := coalesce(e.n / greatest(1, e.over_s), 0);
  kept_s := extract(epoch from outlast._setting_interval('retention.dedup') + interval '7 days');
  bytes_each := bytes / nullif(stored, 0)::float8;
  stored_at_rest := per_second * kept_s;
  bytes_at_rest := stored_at_rest * bytes_each;
  return next;
end $$;

-- The leaves of the inbox that hold ids of two times and between.
create or replace function outlast._inbox_slots(since timestamptz, until timestamptz) returns smallint[]
language sql immutable parallel safe
as $$
  select array(
    select distinct (n % 16)::smallint
    from generate_series(floor(outlast._epoch(_inbox_slots.since) / outlast._inbox_slot_s())::bigint,
                         floor(outlast._epoch(_inbox_slots.until) / outlast._inbox_slot_s())::bigint) n)
$$;

-- How many rows a consumer has in the inbox, as the statistics of its leaves know it; up to 10,000 a leaf are counted.
create or replace function outlast._inbox_rows(consumer int) returns bigint
language plpgsql stable
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  s smallint;
  n bigint;
  total bigint := 0;
  leaf regclass;
  share float8;
begin
  for s in select x::smallint from generate_series(0, 15) x loop
    select count(*) into n from (
      select from outlast._processed_event p where p.slot = s and p.consumer = _inbox_rows.consumer limit 10001) x;
    if n > 10000 then
      leaf := format('outlast._processed_event_%s', s)::regclass;
      select case when m.consumer is not null then m.f when k.reltuples > 0 then 1.0 / greatest(1, (select count(*) from outlast._consumer)) end
      into share
      from pg_catalog.pg_class k
      left join lateral (
        select u.v as consumer, u.f
        from pg_catalog.pg_stats t
        cross join lateral unnest(t.most_common_vals::text::int[], t.most_common_freqs) u (v, f)
        where format('%I.%I', t.schemaname, t.tablename)::regclass = leaf and t.attname = 'consumer' and u.v = _inbox_rows.consumer) m on true
      where k.oid = leaf;
      n := greatest(n, (share * (select greatest(k.reltuples, 0) from pg_catalog.pg_class k where k.oid = leaf))::bigint);
    end if;
    total := total + n;
  end loop;
  return total;
end $$;

-- The leaves of both rings, with what is known of each.
create or replace function outlast._slots() returns table (
  ring text, slot smallint, bytes bigint, passed_at timestamptz, removable_at timestamptz, swept_until timestamptz,
  emptied_until timestamptz, first_at timestamptz, last_at timestamptz)
language sql stable
as $$
  select r.ring, r.slot,
         pg_total_relation_size(format(case r.ring when 'log' then 'outlast._event_%s' else 'outlast._processed_event_%s' end, r.slot)::regclass),
         r.passed_at, r.removable_at, r.swept_until, r.emptied_until,
         case r.ring when 'log' then (select e.emitted_at from outlast._first_of_leaf(r.slot) e) else (outlast._inbox_window(r.slot)).since end,
         case r.ring when 'log' then (select e.emitted_at from outlast._last_row(r.slot) e) else (outlast._inbox_window(r.slot)).until end
  from outlast._ring_slot r
$$;
