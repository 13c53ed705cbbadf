-- What becomes of rows of an outbox table of theirs that were claimed: confirmed by the broker and deleted (or marked), set aside
-- as whole copies, or left to the next claim. Each in one commit with what is written down here.

-- The rows of these events under a lease, which this transaction takes; OL001 when somebody newer owns it.
create or replace function outlast._outbox_owned(token uuid, ids uuid[]) returns setof outlast._outbox_row
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  l outlast._lease := outlast._take(_outbox_owned.token);
begin
  perform outlast._check_isolation();
  if l.token is null or l.room <> 'outbox' then
    raise exception 'lease % is lost: somebody newer owns its work', _outbox_owned.token using errcode = 'OL001';
  end if;
  return query select r.* from outlast._outbox_row r where r.token = l.token and (ids is null or r.event_id = any (ids)) order by r.n;
end $$;

-- These are done with, under a lease that this transaction has taken.
create or replace function outlast._outbox_forget(
  token uuid, ids uuid[], process uuid, seq bigint, nonce uuid, acked bigint) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  delete from outlast._outbox_row r where r.token = _outbox_forget.token and r.event_id = any (ids);
  if process is not null then
    perform outlast._remember(process, seq, nonce, acked);
  end if;
end $$;

-- The broker has confirmed these: their rows go, or are marked, in the commit that forgets them here. Answers how many there
-- were; others had deleted the rest. Rows that somebody else has locked stay, and will be published once more.
create or replace function outlast._outbox_done(
  outbox text, token uuid, ids uuid[],
  process uuid default null, seq bigint default null, nonce uuid default null, acked bigint default null) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set lock_timeout = '2s'
as $$
declare
  m outlast._outbox_map := outlast._outbox_asked(outbox);
  owned outlast._outbox_row[] := array(select r from outlast._outbox_owned(token, ids) r);
  r outlast._outbox_row;
  settled uuid[] := array(select u.event_id from unnest(owned) u);
  n int;
  total int := 0;
begin
  begin
    execute m.done using array(select u.row_id from unnest(owned) u), array(select u.row_at from unnest(owned) u);
    get diagnostics total = row_count;
  exception when lock_not_available then
    -- One by one: the others do not wait for it.
    settled := '{}';
    perform set_config('lock_timeout', '20ms', true);
    foreach r in array owned loop
      begin
        execute m.done using array[r.row_id], array[r.row_at];
        get diagnostics n = row_count;
        total := total + n;
        settled := settled || r.event_id;
      exception when lock_not_available then null;
      end;
    end loop;
  end;
  perform outlast._outbox_forget(token, settled, process, seq, nonce, acked);
  return total;
end $$;

-- Ends a lease. What is left under it was not sent, and is as if it had not been claimed; but `kept` may have been sent: it stays
-- known, and comes first next time. `lost`: it counts as if its owner had been lost.
create or replace function outlast._outbox_end(token uuid, kept uuid[], lost boolean default false) returns void
language plpgsql volatile
set lock_timeout = '8s'
as $$
#variable_conflict use_column
declare
  l outlast._lease := outlast._take(_outbox_end.token);
begin
  perform outlast._check_isolation();
  if l.token is null then return; end if;
  update outlast._outbox_row r set token = null, lapses = r.lapses + case when _outbox_end.lost then 1 else 0 end
  where r.token = l.token and (r.event_id = any (kept) or r.lapses > 0);
  delete from outlast._outbox_row r where r.token = l.token;
  delete from outlast._lease x where x.token = l.token;
end $$;

-- Parks a copy of a row. Under a lease it must be in that claim. What follows of its key, on an ordered outbox, is not claimed
-- while it is there.
create or replace function outlast._outbox_park(
  consumer int, token uuid, id uuid, type text, tenant text, key text, headers jsonb, source text, subject text, content_type text,
  payload bytea, emitted_at timestamptz, class text, reason text, after_ms bigint, charged boolean) returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  l outlast._lease;
  at timestamptz := outlast.clock();
  r outlast._outbox_row;
  blocked boolean := false;
begin
  perform outlast._check_class(_outbox_park.id, _outbox_park.class);
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if _outbox_park.token is not null then
    l := outlast._prove(_outbox_park.token);
    delete from outlast._outbox_row x where x.token = l.token and x.event_id = _outbox_park.id returning x.* into r;
    if r.event_id is null or l.consumer <> _outbox_park.consumer then
      raise exception 'event % is not in the claim %', _outbox_park.id, _outbox_park.token using errcode = 'OL003';
    end if;
  else
    delete from outlast._outbox_row x where x.consumer = _outbox_park.consumer and x.event_id = _outbox_park.id and x.token is null;
    l.consumer := _outbox_park.consumer;
    l.room := 'outbox';
  end if;
  select * into strict c from outlast._consumer x where x.id = _outbox_park.consumer;
  if c.ordered and key is not null then
    insert into outlast._parked_key (consumer, tenant, key, leader, since)
    values (c.id, _outbox_park.tenant, _outbox_park.key, _outbox_park.id, at) on conflict do nothing;
    blocked := not found;
  end if;
  insert into outlast._parked (consumer, event_id, log_id, state, class, failures, reason, next_at, parked_at, changed_at,
    schema_version, emitted_at, type, tenant, key, source, subject, content_type, headers, payload, foreign_id)
  values (c.id, _outbox_park.id, nextval('outlast._arrival'), case when blocked then 'behind' else 'retry' end, _outbox_park.class, 0,
    outlast._clean(_outbox_park.reason), case when not blocked then at end, at, at,
    1, coalesce(_outbox_park.emitted_at, r.since, at), _outbox_park.type, _outbox_park.tenant, _outbox_park.key, _outbox_park.source,
    _outbox_park.subject, _outbox_park.content_type, _outbox_park.headers, _outbox_park.payload, true)
  on conflict do nothing;
  if found and blocked then
    perform outlast._count_behind(c.id, array[row(null, null, _outbox_park.id, _outbox_park.tenant, _outbox_park.key)::outlast._keyed]);
  end if;
  return outlast._failed(l, _outbox_park.id, _outbox_park.class, outlast._clean(_outbox_park.reason), after_ms, charged);
end $$;

-- Sets a row aside: a whole copy is parked, and in the same commit theirs goes, or is marked. Answers what became of it; `gone`:
-- it is not there any more; `locked`: somebody else has it locked, and nothing was done.
create or replace function outlast._outbox_set_aside(
  m outlast._outbox_map, consumer int, token uuid, f outlast._outbox_found, class text, reason text, after_ms bigint, charged boolean) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set lock_timeout = '200ms'
as $$
declare
  payload bytea;
  n int;
begin
  execute format('select %s from %s t where %s and %s', (m).payload, (m).relation, (m).row, (m).pending) into payload using (f).row_id, (f).row_at;
  if payload is null then return 'gone'; end if;
  begin
    execute (m).done using array[(f).row_id], array[(f).row_at];
    get diagnostics n = row_count;
  exception when lock_not_available then
    return 'locked';
  end;
  if n = 0 then return 'gone'; end if;
  return outlast._outbox_park(consumer, token, outlast._outbox_event_id((m).identity, (f).row_id, (f).row_at), (f).type,
    left((f).tenant, 200), (f).key, case jsonb_typeof((f).headers) when 'object' then (f).headers end, (m).identity, (f).topic,
    (m).content_type, payload, (f)."time", class, reason, after_ms, charged);
end $$;

-- What became of a row that was not published: as `_fail`, with a copy that the retry will publish.
-- from: claimed; to: retry, quarantined, behind.
create or replace function outlast._outbox_failed(
  outbox text, token uuid, id uuid, class text, reason text, after_ms bigint, charged boolean) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  m outlast._outbox_map := outlast._outbox_asked(outbox);
  r outlast._outbox_row;
  f outlast._outbox_found;
begin
  select x.* into r from outlast._outbox_owned(token, array[id]) x;
  if r.event_id is null then
    raise exception 'event % is not in the claim %', id, token using errcode = 'OL003';
  end if;
  execute format('select x.row_id, x.row_at, x."time", x.tenant, x.key, x.topic, x.type, x.headers, x.size, $3, 0::bigint
      from (select %s from %s t where %s and %s) x', m.fields, m.relation, m.row, m.pending)
  into f using r.row_id, r.row_at, r.lapses, null::text, 2147483647;
  if f.row_id is null then return 'gone'; end if;
  return outlast._outbox_set_aside(m, r.consumer, token, f, class, reason, after_ms, charged);
end $$;
