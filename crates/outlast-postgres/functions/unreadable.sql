-- Messages that are no event, kept as they came; and what of deliveries is forgotten in time.

-- Stores a message that is no event of ours, as it came: then it may be acked. Answers the id under which people find it;
-- the same bytes have the same one.
create or replace function outlast._keep_unreadable(
  consumer int, broker_id text, why text, attributes bytea, payload bytea) returns uuid
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
  digest uuid := substr(encode(sha256(int8send(length(attributes)) || attributes || payload), 'hex'), 1, 32)::uuid;
begin
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  insert into outlast._unreadable as u (consumer, id, first_at, last_at, broker_id, why, attributes, payload)
  values (_keep_unreadable.consumer, digest, at, at, outlast._clean(_keep_unreadable.broker_id),
          outlast._clean(_keep_unreadable.why), _keep_unreadable.attributes, _keep_unreadable.payload)
  on conflict (consumer, id) do update set seen = u.seen + 1, last_at = excluded.last_at;
  return digest;
end $$;

-- A person has looked at an unreadable message and does without it. Answers whether it was there.
create or replace function outlast.discard(consumer text, id uuid, reason text, actor text default null) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c int := (outlast._named(discard.consumer)).id;
  gone record;
begin
  if coalesce(discard.reason, '') = '' then
    raise exception 'discard %: say why', id using errcode = 'OL005';
  end if;
  delete from outlast._unreadable u where u.consumer = c and u.id = discard.id
  returning u.seen, u.why, u.broker_id, octet_length(u.payload) as bytes into gone;
  if gone.seen is null then return false; end if;
  perform outlast._audited('unreadable.discarded', discard.consumer || ' ' || discard.id,
    to_jsonb(gone) || jsonb_build_object('reason', outlast._clean(discard.reason)), discard.actor);
  return true;
end $$;

-- Hands an unreadable message to its consumer after all, because a program could read its envelope now (an array of one, as for
-- _claim_delivered): due at once, with a full budget of tries. `outcome`: retry, behind; done, parked, other, where nothing is left
-- to do; or, where nothing was changed, running, paused, absent.
create or replace function outlast._read_again(
  consumer text, id uuid, envelopes jsonb, actor text default null, out event_id uuid, out outcome text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c outlast._consumer := outlast._named(_read_again.consumer);
  u outlast._unreadable;
begin
  -- Not locked: nothing may be written before a claim. Whoever does the same at once finds the event parked.
  select * into u from outlast._unreadable x where x.consumer = c.id and x.id = _read_again.id;
  if u.id is null then
    outcome := 'absent';
    return;
  end if;
  event_id := (envelopes -> 0 ->> 'id')::uuid;
  select v.verdict into strict outcome
  from outlast._claim_delivered(c.id, envelopes, array[u.payload], 15000, dead => 'it could not be read when it came: ' || u.why) v;
  if outcome in ('defer', 'paused') then
    outcome := case outcome when 'defer' then 'running' else outcome end;
    return;
  end if;
  if outcome = 'kept' then
    select r.outcome into strict outcome from outlast.retry(c.name, event_id, _read_again.actor) r;
  end if;
  delete from outlast._unreadable x where x.consumer = c.id and x.id = u.id;
  perform outlast._audited('unreadable.read', c.name || ' ' || u.id,
    jsonb_build_object('event', event_id, 'outcome', outcome, 'seen', u.seen, 'why', u.why), _read_again.actor);
end $$;

-- Forgets, at most n rows a call: proofs of foreign completions that are older than the inbox is kept, and events that a
-- broker has not delivered again for half an hour after their owner was lost: what waits behind one goes on then.
create or replace function outlast._forget_delivered(n int) returns int
language plpgsql volatile
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  gone int;
  total int := 0;
  d outlast._delivered;
  newest timestamptz;
  -- A volatile function is no bound of an index.
  lost timestamptz := outlast.clock() - interval '30 minutes';
  kept timestamptz := outlast.clock() - outlast._setting_interval('retention.inbox');
begin
  for d in
    select x.* from outlast._delivered x
    where x.token is null and x.since < lost
    order by x.since limit n for update skip locked
  loop
    delete from outlast._delivered x where x.consumer = d.consumer and x.event_id = d.event_id;
    perform outlast._release(d.consumer, d.event_id);
    total := total + 1;
  end loop;
  if exists (select from outlast._check_settings()) then return total; end if;
  with old as (
    select f.consumer, f.event_id from outlast._foreign_event f
    where f.emitted_at < kept and f.at < kept
    order by f.emitted_at limit n
  ), deleted as (
    delete from outlast._foreign_event f using old where f.consumer = old.consumer and f.event_id = old.event_id
    returning f.emitted_at
  )
  select count(*), max(x.emitted_at) into gone, newest from deleted x;
  if gone > 0 then
    update outlast._foreign_place p set forgotten_until = newest + interval '1 microsecond'
    where p.forgotten_until is null or p.forgotten_until <= newest;
  end if;
  return total + gone;
end $$;
