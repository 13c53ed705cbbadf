-- A claim of an outbox table of theirs. What is claimed is written down here, under a lease; theirs is only read. Nobody holds a
-- lock of theirs, and nothing of ours is open, while it is published.
--
-- No place in their table is ever trusted as "everything before is done": ids and times are drawn before a commit, and a late
-- one appears behind whoever has passed. So a claimer goes round: a piece of the heap at a time, by its blocks, from the
-- beginning to the end and again. That needs no index of theirs, any type of id will do, and what one claim looks at is bounded
-- however many dead rows there are. New rows usually stand in the last blocks, which each claim looks at too.

-- Who claims of an outbox: one at a time, as long as a statement takes. Answers open, busy (somebody else does) or paused. What
-- lost owners had is free from now on.
create or replace function outlast._outbox_open(consumer int) returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  t uuid;
begin
  perform outlast._check_isolation();
  c := outlast._claimable(_outbox_open.consumer);
  if c.id is null then return 'paused'; end if;
  if not pg_try_advisory_xact_lock(hashtextextended('outbox ' || c.id, outlast._lock_room(7308))) then return 'busy'; end if;
  for t in
    select l.token from outlast._lease l
    where l.room = 'outbox' and l.consumer = c.id and outlast._lapsed(l.expires_at) order by l.token
  loop
    -- Ended like any other, with both locks; neither waits.
    continue when not pg_try_advisory_xact_lock(outlast._lease_lock(t));
    perform from outlast._lease l where l.token = t and outlast._lapsed(l.expires_at) for update skip locked;
    continue when not found;
    update outlast._outbox_row r set token = null, lapses = r.lapses + 1 where r.token = t;
    delete from outlast._lease l where l.token = t;
  end loop;
  return 'open';
end $$;

-- These rows are ours, under this token. The ids of their events are derived here.
create or replace function outlast._outbox_take(
  consumer int, token uuid, identity text, row_ids text[], row_ats bigint[], tenants text[], keys text[], lease_ms int,
  process uuid, seq bigint, nonce uuid, acked bigint) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
begin
  perform outlast._check_lease_ms(lease_ms);
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  insert into outlast._lease (token, room, consumer, process, expires_at)
  values (_outbox_take.token, 'outbox', _outbox_take.consumer, _outbox_take.process, at + make_interval(secs => lease_ms / 1000.0));
  insert into outlast._outbox_row as r (consumer, row_id, row_at, event_id, token, n, tenant, key, since)
  select _outbox_take.consumer, u.row_id, u.row_at, outlast._outbox_event_id(_outbox_take.identity, u.row_id, u.row_at),
         _outbox_take.token, u.n, case when u.key is not null then u.tenant end, u.key, at
  from unnest(row_ids, row_ats, tenants, keys) with ordinality u (row_id, row_at, tenant, key, n)
  on conflict (consumer, row_id, row_at) do update
  set token = excluded.token, n = excluded.n, tenant = excluded.tenant, key = excluded.key where r.token is null;
  if process is not null then
    perform outlast._remember(process, seq, nonce, acked);
  end if;
end $$;

-- What nobody has and is not in their table any more: somebody else has deleted it.
create or replace function outlast._outbox_gone(consumer int, row_ids text[], row_ats bigint[]) returns void
language sql volatile
as $$
  delete from outlast._outbox_row r using unnest(row_ids, row_ats) u (row_id, row_at)
  where r.consumer = _outbox_gone.consumer and r.row_id = u.row_id and r.row_at = u.row_at and r.token is null
$$;

-- Why a row can never be published, whatever the broker says; null: it can. `most`: bytes of a message. Stable, so that it is
-- inlined into what asks it for a thousand rows.
create or replace function outlast._outbox_unfit(m outlast._outbox_map, f outlast._outbox_found, most int) returns text
language sql stable
as $$
  select case
    when (f).size > most then format('the message is refused: payload of %s bytes is over the limit of %s of the broker', (f).size, most)
    when length((f).row_id) > 500 then 'the message is refused: its id is longer than 500 characters'
    when length((f).key) > 500 then 'the message is refused: its key is longer than 500 characters'
    when length((f).tenant) > 200 or (f).tenant ~ '[[:cntrl:]]' then 'the message is refused: its tenant is longer than 200 characters, or has control characters'
    when (m).needs_topic and coalesce((f).topic, '') = '' then 'the message is refused: it has no topic'
    when jsonb_typeof((f).headers) not in ('object', 'null') or octet_length((f).headers::text) > 16384 then 'the message is refused: its headers are no object, or over 16384 bytes'
    when (f).lapses >= 5 then 'the relay was lost 5 times while it published this'
  end
$$;

-- Takes as much of an outbox as these bounds allow, beginning at a block of its heap. One row: the token, how many rows, how many
-- were set aside, where the next claim begins, and whether that is a new round. `state`: open; busy and paused: nothing was looked at.
-- Of an ordered outbox only the beginning of a key is taken, and only where nobody has anything of it, in work or parked.
-- Row of which relays were lost more than once are taken alone: one of them may be what kills.
create or replace function outlast._outbox_claim(
  consumer int, outbox text, n int, bytes bigint, most int, lease_ms int, at_block bigint,
  process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null)
returns table (token uuid, state text, rows int, aside int, next_block bigint, round boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set lock_timeout = '200ms'
as $$
#variable_conflict use_variable
declare
  piece constant bigint := 512;                  -- blocks
  tail constant bigint := 64;
  m outlast._outbox_map;
  blocks bigint;
  free outlast._outbox_found[] := '{}';          -- what nobody has any more
  late outlast._outbox_found[] := '{}';          -- from the last blocks
  here outlast._outbox_found[] := '{}';
  found_all outlast._outbox_found[];
  f outlast._outbox_found;
  as_found constant text := 'row(x.row_id, x.row_at, x."time", x.tenant, x.key, x.topic, x.type, x.headers, x.size, %s, %s)::outlast._outbox_found';
  not_blocked constant text := '(%1$s.key is null or not exists (
      select from outlast._outbox_row y where y.consumer = $1 and y.tenant = %1$s.tenant and y.key = %1$s.key and y.token is not null)
    and not exists (select from outlast._parked_key k where k.consumer = $1 and k.tenant = %1$s.tenant and k.key = %1$s.key))';
  seek text;
  gone_ids text[];
  gone_ats bigint[];
  per int;
  alone boolean := false;
  why text;
  took outlast._outbox_found[] := '{}';
  size bigint := 0;
  left_over boolean := false;
  stopped text[] := '{}';
  lot text;
begin
  rows := 0;
  aside := 0;
  next_block := at_block;
  round := false;
  state := outlast._outbox_open(consumer);
  if state <> 'open' then
    return next;
    return;
  end if;
  m := outlast._outbox_asked(outbox);
  blocks := case m.kind
    when 'p' then (select coalesce(max(pg_relation_size(p.relid)), 0) from pg_partition_tree(m.oid) p where p.isleaf)
    else pg_relation_size(m.oid) end / current_setting('block_size')::bigint;
  if at_block >= blocks then next_block := 0; end if;

  -- First what lost owners have left: by its ids, wherever it stands.
  if exists (select from outlast._outbox_row r where r.consumer = _outbox_claim.consumer and r.token is null) then
    execute format('select array_agg(r.row_id), array_agg(r.row_at) from outlast._outbox_row r
        where r.consumer = $1 and r.token is null and not exists (select from %s t where %s and %s)',
      m.relation, m.joined, m.pending)
    into gone_ids, gone_ats using consumer;
    if gone_ids is not null then
      perform outlast._outbox_gone(consumer, gone_ids, gone_ats);
    end if;
    execute format('select array(select %s from outlast._outbox_row r
        cross join lateral (select %s from %s t where %s and %s) x
        where r.consumer = $1 and r.token is null and %s order by r.lapses desc, r.since, r.n limit $2)',
      format(as_found, 'r.lapses', '0'), m.fields, m.relation, m.joined, m.pending,
      case when m.ordered then format(not_blocked, 'x') else 'true' end)
    into free using consumer, n, null::text, null::text, most;
    if cardinality(free) > 0 and (free[1]).lapses >= 2 then
      free := free[1:1];
      alone := true;
    end if;
  end if;
  if not alone and cardinality(free) < n then
    seek := format('select array(select %s from (select %s, t.ctid as place from %s t where t.ctid >= $3::text::tid and t.ctid < $4::text::tid and %s) x
        where not exists (select from outlast._outbox_row r where r.consumer = $1 and r.row_id = x.row_id and r.row_at = x.row_at) and %s limit $2)',
      format(as_found, '0', '(x.place::text::point)[0]::bigint'), m.fields, m.relation, m.pending,
      case when m.ordered then format(not_blocked, 'x') else 'true' end);
    if next_block + piece < blocks then
      execute seek into late using consumer, greatest(n / 4, 1),
        format('(%s,0)', greatest(next_block + piece, blocks - tail)), '(4294967295,0)', most;
    end if;
    execute seek into here using consumer, n - cardinality(free), format('(%s,0)', next_block),
      format('(%s,0)', case when next_block + piece < blocks then next_block + piece else 4294967295 end), most;
  end if;
  found_all := free || late || here;
  if m.ordered and cardinality(found_all) > 0 then
    -- Of each key that was found, its beginning; the first of all keys, then the second ones.
    select greatest(1, case when alone then 1 else 4 * n / greatest(count(distinct (u.tenant, u.key)), 1) end) into per
    from unnest(found_all) u where u.key is not null;
    per := least(per, n);
    execute format('select array(select %s from (
          select a.k, x.*, row_number() over (partition by a.tenant, a.k order by x.sorted) as nth
          from (select distinct %s as k, %s as tenant from %s t join unnest($3) r on %s where %s is not null) a
          cross join lateral (select %s, %s as sorted from %s t where %s = a.k %s and %s order by %s limit $4) x) x
        left join outlast._outbox_row r on r.consumer = $1 and r.row_id = x.row_id and r.row_at = x.row_at
        where x.nth <= $4 order by x.nth, x.tenant, x.key limit $2)',
      format(as_found, 'coalesce(r.lapses, 0)', 'x.nth'),
      m.key, coalesce(m.tenant, 'null::text'), m.relation, m.joined, m.key,
      m.fields, m.sorted, m.relation, m.key, case when m.tenant is not null then 'and ' || m.tenant || ' = a.tenant' else '' end, m.pending, m.sorted)
    into here using consumer, case when alone then 1 else n end, found_all, per, most;
    found_all := array(select u from unnest(found_all) u where u.key is null) || here;
  end if;

  if not exists (select from unnest(found_all) u where outlast._outbox_unfit(m, u, most) is not null) then
    -- Nearly always: all at once, because each turn of a loop would copy what it has so far.
    took := array(
      select row(t.row_id, t.row_at, t."time", t.tenant, t.key, t.topic, t.type, t.headers, t.size, t.lapses, t.nth)::outlast._outbox_found
      from (select x.*, sum(x.size) over (order by x.place) as upto
            from unnest(found_all) with ordinality x (row_id, row_at, "time", tenant, key, topic, type, headers, size, lapses, nth, place)) t
      where t.place <= n and (t.place = 1 or t.upto <= bytes) order by t.place);
    left_over := cardinality(took) < cardinality(found_all);
    found_all := '{}';
  end if;
  foreach f in array found_all loop
    lot := case when m.ordered and f.key is not null then jsonb_build_array(f.tenant, f.key)::text end;
    continue when lot = any (stopped);
    why := outlast._outbox_unfit(m, f, most);
    if why is not null then
      -- In its turn: what is before it of its key goes first.
      if lot is not null then
        stopped := stopped || lot;
        continue when f.nth > 1;
      end if;
      if aside >= 10 then
        left_over := true;
        continue;
      end if;
      if outlast._outbox_set_aside(m, consumer, null, f, 'permanent', why, null, true) in ('retry', 'behind', 'quarantined') then
        aside := aside + 1;
      end if;
      continue;
    end if;
    if cardinality(took) >= n or cardinality(took) > 0 and size + f.size > bytes then
      left_over := true;
      exit;
    end if;
    took := took || f;
    size := size + f.size;
  end loop;

  if not alone and not left_over then
    if cardinality(free) + cardinality(here) >= n and not m.ordered then
      next_block := greatest(next_block, (here[cardinality(here)]).nth);
    elsif cardinality(free) + cardinality(late) + cardinality(here) < n or not m.ordered then
      next_block := next_block + piece;
    end if;
  end if;
  if next_block >= blocks then
    next_block := 0;
    round := true;
  end if;
  if cardinality(took) > 0 then
    token := gen_random_uuid();
    rows := cardinality(took);
    perform outlast._outbox_take(consumer, token, m.identity,
      array(select u.row_id from unnest(took) u), array(select u.row_at from unnest(took) u),
      array(select u.tenant from unnest(took) u), array(select case when m.ordered then u.key end from unnest(took) u), lease_ms,
      process, seq, nonce, acked);
  end if;
  return next;
end $$;

-- What was claimed under a token, whole, in its order. Rows that were deleted meanwhile are not among it.
create or replace function outlast._outbox_read(outbox text, token uuid) returns setof outlast._claimed
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  m outlast._outbox_map := outlast._outbox_asked(outbox);
begin
  return query execute format('select r.token, r.event_id, 0::bigint, x.type, 1, x.tenant, x.key, null::text, null::uuid, null::uuid, null::text,
        case jsonb_typeof(x.headers) when ''object'' then x.headers end, $2, x.topic, null::bigint, $3, null::text, x.payload, coalesce(x."time", r.since), 1 + r.lapses,
        r.lapses, 0, null::bigint
      from outlast._outbox_row r
      cross join lateral (select %s, %s as payload from %s t where %s and %s) x
      where r.token = $1 order by r.n',
    m.fields, m.payload, m.relation, m.joined, m.pending)
  using token, m.identity, m.content_type, null::text, 2147483647;
end $$;
