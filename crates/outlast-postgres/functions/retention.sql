-- The rings: when a leaf may be emptied, and how. By TRUNCATE of that one leaf, an hour after it became removable: an older
-- snapshot would find it empty. A leaf that cannot be emptied in time just keeps growing when the ring comes round.
-- Who still needs one is asked in needs.sql.

-- Takes note of which leaves nobody needs, and since when. Answers those that may be emptied now: how.
create or replace function outlast._judge() returns table (ring text, slot smallint, how text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  r outlast._ring_slot;
  n outlast._ring_slot;
  w record;
  bare boolean;
  at timestamptz := outlast.clock();
  log_kept interval := outlast._setting_interval('retention.log');
  inbox_kept interval := outlast._setting_interval('retention.inbox');
begin
  perform outlast._check_isolation();
  for r in select * from outlast._ring_slot x order by x.ring, x.slot loop
    n := r;
    how := null;
    if r.ring = 'log' then
      if pg_relation_size(format('outlast._event_%s', r.slot)::regclass) = 0 or exists (select from outlast._log_needs(r.slot)) then
        n.passed_at := null;
      else
        n.passed_at := coalesce(r.passed_at, at);
      end if;
      n.removable_at := case when n.passed_at + log_kept <= at then coalesce(r.removable_at, at) end;
      if n.removable_at + interval '1 hour' <= at then how := 'empty'; end if;
    else
      select * into w from outlast._inbox_window(r.slot);
      n.passed_at := null;
      n.removable_at := null;
      if r.emptied_until is null or r.emptied_until < w.until then
        bare := pg_relation_size(format('outlast._processed_event_%s', r.slot)::regclass) = 0;
        if w.until + inbox_kept <= at and not exists (select from outlast._inbox_needs(r.slot)) then
          if bare then
            n.emptied_until := w.until;
            n.swept_until := w.until;
          else
            n.removable_at := coalesce(r.removable_at, at);
          end if;
        elsif (r.swept_until is null or r.swept_until < w.until) and not exists (select from outlast._sweep_needs(r.slot)) then
          if bare or not outlast._is_worth_sweeping(r.slot) then
            n.swept_until := w.until;
          else
            n.passed_at := coalesce(r.passed_at, at);
          end if;
        end if;
      end if;
      how := case when n.removable_at + interval '1 hour' <= at then 'empty'
                  when n.passed_at + interval '1 hour' <= at then 'sweep' end;
    end if;
    if n is distinct from r then
      update outlast._ring_slot x
      set passed_at = n.passed_at, removable_at = n.removable_at, swept_until = n.swept_until, emptied_until = n.emptied_until
      where x.ring = r.ring and x.slot = r.slot;
    end if;
    if how is not null and (r.tried_at is null or r.tried_at + interval '1 minute' <= at) then
      ring := r.ring;
      slot := r.slot;
      return next;
    end if;
  end loop;
end $$;

-- Takes a leaf for this transaction alone, if that is to be had at once. First without waiting: who waits stands before all
-- who come after him, and readers lock every leaf. Only when that was tried often he waits, and not for long.
create or replace function outlast._take_leaf(leaf text) returns boolean
language plpgsql volatile
as $$
begin
  for i in 1..100 loop
    begin
      execute format('lock table only outlast.%I in access exclusive mode nowait', leaf);
      return true;
    exception when lock_not_available then
      perform pg_sleep(0.001 + random() * 0.004);
    end;
  end loop;
  perform set_config('lock_timeout', '30ms', true);
  begin
    execute format('lock table only outlast.%I in access exclusive mode', leaf);
    return true;
  exception when lock_not_available or query_canceled then
    return false;
  end;
end $$;

-- A leaf of one of the two rings, and nothing else.
create or replace function outlast._truncate_leaf(leaf text) returns void
language plpgsql volatile
as $$
begin
  if leaf !~ '^_(event|processed_event)_(\d|1[0-5])$' then
    raise exception '% is no leaf of a ring', quote_nullable(leaf) using errcode = 'OL005';
  end if;
  execute format('truncate only outlast.%I', leaf);
end $$;

-- Takes the lock of a leaf that may be emptied, if nobody needs it. Null: it is taken, and _empty_now comes next in the same
-- transaction; else why not. Two statements, because the caller bounds the second by statement_timeout: TRUNCATE waits for
-- the disk once an index, and claims wait for TRUNCATE.
create or replace function outlast._empty_take(ring text, slot smallint, how text) returns text
language plpgsql volatile
set jit = off
as $$
#variable_conflict use_column
declare
  r outlast._ring_slot;
  why text;
begin
  perform outlast._check_isolation();
  select 'settings: ' || p into why from outlast._check_settings() p limit 1;
  if why is not null then return why; end if;
  select * into r from outlast._ring_slot x where x.ring = _empty_take.ring and x.slot = _empty_take.slot for update;
  if (how = 'empty' and r.removable_at + interval '1 hour' <= outlast.clock()) is not true
    and (how = 'sweep' and r.passed_at + interval '1 hour' <= outlast.clock()) is not true then
    return 'not yet';
  end if;
  why := coalesce(outlast._needed(ring, slot, how), (select x.kind || ': ' || x.about from outlast._old_snapshots() x limit 1));
  if why is not null then return why; end if;
  update outlast._ring_slot x set tried_at = outlast.clock() where x.ring = _empty_take.ring and x.slot = _empty_take.slot;
  if not outlast._take_leaf(case ring when 'log' then '_event_' else '_processed_event_' end || slot) then return 'lock'; end if;
  return null;
end $$;

-- Empties the leaf whose lock was taken, if still nobody needs it: each statement from here on sees what committed before
-- we had the lock. Answers what came of it: emptied, or why not.
create or replace function outlast._empty_now(ring text, slot smallint, how text) returns text
language plpgsql volatile
set jit = off
as $$
#variable_conflict use_column
declare
  w record;
  leaf text := case ring when 'log' then '_event_' else '_processed_event_' end || slot;
  why text;
  bytes bigint;
  kept outlast._processed_event[] := '{}';
begin
  why := outlast._needed(ring, slot, how);
  if why is not null then return why; end if;
  bytes := pg_total_relation_size(format('outlast.%I', leaf)::regclass);
  if how = 'sweep' then
    kept := array(select p from outlast._rows_to_keep(slot) p);
  end if;
  perform outlast._truncate_leaf(leaf);
  insert into outlast._processed_event select (u).* from unnest(kept) u;
  if ring = 'inbox' then
    select * into w from outlast._inbox_window(slot);
    update outlast._ring_slot x set passed_at = null, removable_at = case when how = 'sweep' then x.removable_at end,
      swept_until = w.until, emptied_until = case when how = 'empty' then w.until else x.emptied_until end
    where x.ring = 'inbox' and x.slot = _empty_now.slot;
  else
    update outlast._ring_slot x set passed_at = null, removable_at = null where x.ring = 'log' and x.slot = _empty_now.slot;
  end if;
  perform outlast._audited('retention.' || how, format('%s slot %s', ring, slot), jsonb_build_object('bytes', bytes, 'kept', cardinality(kept)), 'maintenance');
  -- Nobody has to wait for a standby while we hold this lock: taken back by a failover it is done again.
  if current_setting('synchronous_commit') <> 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
  return 'emptied';
end $$;

create or replace function outlast._needed(ring text, slot smallint, how text) returns text
language plpgsql stable
as $$
begin
  return (
    select x.kind || ': ' || x.about || ', ' || x.detail
    from (
      select * from outlast._log_needs(slot) where ring = 'log'
      union all
      select * from outlast._inbox_needs(slot) where ring = 'inbox' and how = 'empty'
      union all
      select * from outlast._sweep_needs(slot) where ring = 'inbox' and how = 'sweep'
    ) x limit 1);
end $$;

-- The completions of a leaf that no bit proves.
create or replace function outlast._rows_to_keep(slot smallint) returns setof outlast._processed_event
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  return query
    select p.* from outlast._unfolded u
    cross join lateral (
      select * from outlast._processed_event p
      where p.slot = _rows_to_keep.slot and p.consumer = u.consumer and p.event_id = u.event_id offset 0) p
    where u.slot = _rows_to_keep.slot;
  return query select * from outlast._never_folded(_rows_to_keep.slot);
end $$;

-- Moves at most n completions of consumers on brokers out of a leaf that only they keep from being swept. Answers how many. A look-up
-- finds each in one of both places: the leaf is looked at first.
create or replace function outlast._move_out(n int) returns int
language plpgsql volatile
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  s smallint;
  c int;
  gone int;
  total int := 0;
begin
  perform outlast._check_isolation();
  if exists (select from outlast._check_settings()) then return 0; end if;
  for s in
    select r.slot from outlast._ring_slot r cross join lateral outlast._inbox_window(r.slot) w
    where r.ring = 'inbox' and (r.swept_until is null or r.swept_until < w.until) and (r.emptied_until is null or r.emptied_until < w.until)
    order by r.slot
  loop
    continue when not exists (select from outlast._sweep_needs(s) x where x.kind = 'rows' and x.about = 'brokers');
    for c in select x.id from outlast._consumer x where x.broker is not null order by x.id loop
      with page as materialized (
        select p.event_id from outlast._processed_event p
        where p.slot = s and p.consumer = c order by p.event_id limit n - total
      ), moved as (
        delete from outlast._processed_event p using page x
        where p.slot = s and p.consumer = c and p.event_id = x.event_id
        returning p.event_id, p.at, p.outcome, p.reason
      )
      insert into outlast._moved_event (slot, consumer, event_id, at, outcome, reason)
      select s, c, m.event_id, m.at, m.outcome, m.reason from moved m;
      get diagnostics gone = row_count;
      total := total + gone;
      if total >= n then return total; end if;
    end loop;
  end loop;
  return total;
end $$;

-- Removes what has outlived its leaf, at most n rows a call: bits of ranges whose every slot was emptied, what is noted
-- of rows that went with theirs, and what was moved out of it. Answers how many.
create or replace function outlast._forget(n int) returns int
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c int;
  gone int;
  total int := 0;
  r record;
begin
  if exists (select from outlast._check_settings()) then return 0; end if;
  for c in select x.id from outlast._consumer x loop
    delete from outlast._folded f where f.ctid = any (array(
      select q.ctid
      from (select * from (select f.ctid, f.oldest_at, f.newest_at from outlast._folded f
                           where f.consumer = c order by f.base limit n) x) q
      where not exists (
        select from generate_series(floor(outlast._epoch(q.oldest_at) / outlast._inbox_slot_s())::bigint,
                                    floor(outlast._epoch(q.newest_at) / outlast._inbox_slot_s())::bigint) k
        join outlast._ring_slot s on s.ring = 'inbox' and s.slot = k % 16
        where s.emptied_until is null or s.emptied_until < to_timestamp((k + 1) * outlast._inbox_slot_s()))));
    get diagnostics gone = row_count;
    total := total + gone;
  end loop;
  for r in select x.slot, x.emptied_until from outlast._ring_slot x where x.ring = 'inbox' and x.emptied_until is not null loop
    delete from outlast._unfolded u where u.ctid = any (array(
      select v.ctid from outlast._unfolded v
      where v.slot = r.slot and v.event_id < outlast._v7_first(r.emptied_until) limit n));
    get diagnostics gone = row_count;
    total := total + gone;
    delete from outlast._moved_event m where m.ctid = any (array(
      select v.ctid from outlast._consumer c
      cross join lateral (
        select v.ctid from outlast._moved_event v
        where v.slot = r.slot and v.consumer = c.id and v.event_id < outlast._v7_first(r.emptied_until) order by v.event_id limit n) v
      limit n));
    get diagnostics gone = row_count;
    total := total + gone;
  end loop;
  return total + outlast._forget_delivered(n);
end $$;

-- Removes deduplication keys, at most n a call, a week after they began to answer `expired`. Answers how many.
create or replace function outlast._forget_keys(n int) returns int
language plpgsql volatile
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  -- A volatile function is no bound of an index: with the clock in the statement all keys would be read, for nothing.
  kept timestamptz := outlast.clock() - outlast._setting_interval('retention.dedup') - interval '7 days';
  gone int;
begin
  if exists (select from outlast._check_settings()) then return 0; end if;
  delete from outlast._dedup d where d.ctid = any (array(
    select x.ctid from outlast._dedup x
    where x.taken_at < kept order by x.taken_at limit n));
  get diagnostics gone = row_count;
  return gone;
end $$;
