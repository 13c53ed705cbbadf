-- The relay: which routes there are, and what of them is published once more.

create or replace function outlast._routes(broker text) returns setof outlast._route
language sql stable
as $$ select r.* from outlast._route r where r.broker = _routes.broker order by r.name $$;

-- Makes these the routes, an object by name: {"orders": {"broker", "topic", "types", "ordered", "start", "attributes"}}. Answers what
-- changed, and writes one line of the audit for each. The consumer of a route that is gone stays, with its place, until
-- somebody retires it.
create or replace function outlast._apply_routes(routes jsonb, actor text default null)
returns table (name text, was jsonb, becomes jsonb)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  d record;
  types text[];
begin
  perform pg_advisory_xact_lock(outlast._lock_room(7310));
  for d in
    select coalesce(w.key, r.name) as name, '{"start": "now"}' || w.value as becomes, r.name is not null as there,
           jsonb_build_object('broker', r.broker, 'topic', r.topic, 'types', r.types, 'ordered', r.ordered, 'start', r.start,
                              'attributes', r.attributes) as was
    from jsonb_each(_apply_routes.routes) w full join outlast._route r on r.name = w.key order by 1
  loop
    continue when d.there and d.becomes = d.was;
    if d.becomes is null then
      delete from outlast._route r where r.name = d.name;
    else
      types := array(select jsonb_array_elements_text(d.becomes -> 'types'));
      perform outlast._check_filters('relay/' || d.name, types, null, null);
      if d.there and d.becomes -> 'ordered' <> d.was -> 'ordered' then
        raise exception 'route %: whether keys are kept in order cannot be changed', d.name
          using errcode = 'OL005', hint = 'order is part of what a route is: give the other kind another name';
      end if;
      insert into outlast._route as r (name, broker, topic, types, ordered, start, attributes, changed_at)
      values (d.name, d.becomes ->> 'broker', d.becomes ->> 'topic', types, (d.becomes ->> 'ordered')::boolean, d.becomes ->> 'start',
              d.becomes -> 'attributes', outlast.clock())
      on conflict (name) do update
      set broker = excluded.broker, topic = excluded.topic, types = excluded.types, start = excluded.start,
          attributes = excluded.attributes, changed_at = excluded.changed_at,
          limits = case when r.broker = excluded.broker then r.limits end;
    end if;
    perform outlast._audited(case when d.becomes is null then 'route.removed' else 'route.set' end, d.name,
      jsonb_strip_nulls(jsonb_build_object('was', case when d.there then d.was end, 'becomes', d.becomes)), _apply_routes.actor);
    name := d.name;
    was := case when d.there then d.was end;
    becomes := d.becomes;
    return next;
  end loop;
end $$;

-- How many slot lengths lie between 1970 and a time.
create or replace function outlast._log_period(at timestamptz) returns bigint
language sql immutable parallel safe
as $$ select floor(outlast._epoch(at) / 43200)::bigint $$;

-- What of a range a route would publish: how many events the log still holds, and of which times.
create or replace function outlast._rewind_size(
  consumer int, since timestamptz, until timestamptz, hi bigint, out events bigint, out bytes bigint, out first timestamptz, out last timestamptz)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  n record;
begin
  events := 0;
  bytes := 0;
  for p in greatest(outlast._log_period(since), outlast._log_period(outlast.clock()) - 15)
           .. least(outlast._log_period(until), outlast._log_period(outlast.clock()) + 1) loop
    select count(*) as events, coalesce(sum(octet_length(e.payload)), 0) as bytes, min(e.emitted_at) as first, max(e.emitted_at) as last into n
    from outlast._event e
    where e.slot = p % 16 and e.id <= _rewind_size.hi and e.emitted_at >= since and e.emitted_at < until
      and exists (select from outlast._consumer_type t where t.consumer = _rewind_size.consumer and outlast._matches(e.type, t.type));
    events := events + n.events;
    bytes := bytes + n.bytes;
    first := least(first, n.first);
    last := greatest(last, n.last);
  end loop;
end $$;

-- The same, of a route.
create or replace function outlast.rewind_size(
  route text, since timestamptz, until timestamptz default null, out events bigint, out bytes bigint, out first timestamptz, out last timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c outlast._consumer := outlast._named('relay/' || rewind_size.route);
begin
  select s.* into events, bytes, first, last
  from outlast._rewind_size(c.id, rewind_size.since, coalesce(rewind_size.until, outlast.clock()), coalesce(pg_sequence_last_value('outlast._event_id'), 0)) s;
end $$;

-- Publishes once more what a route has published between two times, with the same ids: for a broker that was wiped. Inboxes
-- make it harmless. Answers the rewind, its round, and how many events it has. OL005: there is nothing, or one is running.
create or replace function outlast.rewind(
  route text, since timestamptz, until timestamptz default null, reason text default null, actor text default null,
  out id bigint, out round int, out events bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c outlast._consumer := outlast._named('relay/' || rewind.route);
  at timestamptz := outlast.clock();
  to_time timestamptz := least(coalesce(rewind.until, at), at);
  from_time timestamptz := greatest(rewind.since, at - interval '8 days');   -- a ring holds less
  h bigint := coalesce(pg_sequence_last_value('outlast._event_id'), 0);
begin
  if rewind.since is null or from_time >= to_time then
    raise exception 'rewind %: there is no time from % to %', route, rewind.since, to_time using errcode = 'OL005';
  end if;
  perform pg_advisory_xact_lock(hashtextextended('rewind ' || c.id, outlast._lock_room(7308)));
  if exists (select from outlast._rewind r where r.consumer = c.id and r.state = 'running') then
    raise exception 'rewind %: one is running', route using errcode = 'OL005', hint = '`outlast relay status` shows it; `outlast relay cancel` ends it';
  end if;
  select s.events into events from outlast._rewind_size(c.id, from_time, to_time, h) s;
  if events = 0 then
    raise exception 'rewind %: the log holds none of its events from % to %', route, from_time, to_time using errcode = 'OL005';
  end if;
  select coalesce(max(r.round), 0) + 1 into round from outlast._rewind r where r.consumer = c.id;
  insert into outlast._rewind as r (consumer, round, since, until, hi, period, at_id, events, reason, actor, asked_at)
  values (c.id, rewind.round, from_time, to_time, h, outlast._log_period(from_time), 0, rewind.events, outlast._clean(rewind.reason),
          coalesce(rewind.actor, session_user), at)
  returning r.id into id;
  perform outlast._audited('relay.rewound', rewind.route,
    jsonb_build_object('rewind', rewind.id, 'since', from_time, 'until', to_time, 'events', rewind.events, 'reason', outlast._clean(rewind.reason)), rewind.actor);
end $$;

-- Ends a rewind before its time. What was published stays published.
create or replace function outlast.cancel_rewind(route text, actor text default null) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c outlast._consumer := outlast._named('relay/' || cancel_rewind.route);
  r outlast._rewind;
begin
  update outlast._rewind x set state = 'cancelled', ended_at = outlast.clock()
  where x.consumer = c.id and x.state = 'running' returning * into r;
  if r.id is null then
    raise exception 'no rewind of % is running', route using errcode = 'OL005';
  end if;
  perform outlast._audited('relay.rewind-cancelled', cancel_rewind.route, jsonb_build_object('rewind', r.id, 'sent', r.sent), cancel_rewind.actor);
end $$;

-- Takes the rewind of a route that nobody works on, under a lease; no row: there is none.
create or replace function outlast._rewind_claim(consumer int, process uuid, lease_ms int)
returns table (token uuid, rewind bigint, round int)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  r outlast._rewind;
  l outlast._lease;
  fresh uuid := gen_random_uuid();
begin
  perform outlast._check_isolation();
  perform outlast._check_running(_rewind_claim.consumer);
  perform outlast._check_lease_ms(lease_ms);
  select x.* into r from outlast._rewind x join outlast._consumer c on c.id = x.consumer
  where x.consumer = _rewind_claim.consumer and x.state = 'running' and c.state = 'active';
  if r.id is null then return; end if;
  select * into l from outlast._lease x where x.room = 'rewind' and x.consumer = r.consumer and x.lane is null;
  if l.token is not null then
    if not outlast._lapsed(l.expires_at) then return; end if;
    -- Ended like any other, with both locks; neither waits.
    select * into l from outlast._lease x where x.token = l.token for update skip locked;
    if l.token is null or not outlast._lapsed(l.expires_at) or not pg_try_advisory_xact_lock(outlast._lease_lock(l.token)) then return; end if;
    delete from outlast._lease x where x.token = l.token;
  end if;
  insert into outlast._lease (token, room, consumer, event_id, process, expires_at)
  values (fresh, 'rewind', r.consumer, '00000000-0000-0000-0000-000000000000', _rewind_claim.process, outlast.clock() + make_interval(secs => lease_ms / 1000.0))
  on conflict do nothing;
  if not found then return; end if;
  return query select fresh, r.id, r.round;
end $$;

-- What comes next of a rewind: events in the order of the log, then one row without an id, which says where that leaves it
-- and whether it is the end. Looks at `scanned` events at most.
create or replace function outlast._rewind_page(token uuid, n int, bytes bigint, scanned int)
returns table (event outlast._claimed, period bigint, at_id bigint, over boolean)
language plpgsql volatile
set plan_cache_mode = force_custom_plan          -- so that one leaf is opened
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  l outlast._lease := outlast._prove(_rewind_page.token);
  r outlast._rewind;
  e outlast._event;
  last bigint;
  took int := 0;
  looked int := 0;
begin
  select * into r from outlast._rewind x where x.consumer = l.consumer and x.state = 'running';
  if r.id is null then
    over := true;
    return next;
    return;
  end if;
  if not exists (select from outlast._consumer c where c.id = r.consumer and c.state = 'active') then
    period := r.period;                          -- paused: it waits where it is
    at_id := r.at_id;
    over := false;
    return next;
    return;
  end if;
  last := outlast._log_period(r.until);
  -- Slots that are used again by now hold nothing of it.
  r.period := greatest(r.period, outlast._log_period(outlast.clock()) - 15);
  while r.period <= last loop
    for e in
      select x.* from outlast._event x
      where x.slot = r.period % 16 and x.id > r.at_id and x.id <= r.hi
      order by x.id limit scanned - looked
    loop
      looked := looked + 1;
      if e.emitted_at >= r.since and e.emitted_at < r.until and exists (
        select from outlast._consumer_type t where t.consumer = r.consumer and outlast._matches(e.type, t.type)) then
        bytes := bytes - octet_length(e.payload);
        if took > 0 and bytes < 0 then
          period := r.period;
          at_id := r.at_id;
          over := false;
          event := null;
          return next;
          return;
        end if;
        took := took + 1;
        event := row(l.token, e.event_id, e.id, e.type, e.schema_version::int, e.tenant, e.key, e.actor, e.correlation_id, e.causation_id,
          e.traceparent, e.headers, e.source, e.subject, e.aggregate_version, e.content_type, e.codec_key, e.payload, e.emitted_at,
          1, 0, null, e.key_seq)::outlast._claimed;
        return next;
      end if;
      r.at_id := e.id;
      exit when took >= n;
    end loop;
    exit when took >= n or looked >= scanned;
    r.period := r.period + 1;
    r.at_id := 0;
  end loop;
  event := null;
  period := r.period;
  at_id := r.at_id;
  over := r.period > last;
  return next;
end $$;

-- Moves a rewind over what was published of it. `over`: to its end, and the lease goes.
create or replace function outlast._rewind_moved(token uuid, period bigint, at_id bigint, sent int, refused int, over boolean) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  l outlast._lease;
begin
  if over then
    l := outlast._take(_rewind_moved.token);
    if l.token is null then
      raise exception 'lease % is lost: somebody newer owns its work', _rewind_moved.token using errcode = 'OL001';
    end if;
    delete from outlast._lease x where x.token = l.token;
  else
    l := outlast._prove(_rewind_moved.token);
  end if;
  update outlast._rewind x
  set period = coalesce(_rewind_moved.period, x.period), at_id = coalesce(_rewind_moved.at_id, x.at_id),
      sent = x.sent + _rewind_moved.sent, refused = x.refused + _rewind_moved.refused,
      state = case when over then 'done' else x.state end, ended_at = case when over then outlast.clock() end
  where x.consumer = l.consumer and x.state = 'running';
end $$;

create or replace view outlast.route as
select r.name, r.broker, r.topic, r.types, r.ordered, r.attributes, r.changed_at, 'relay/' || r.name as consumer, r.start, r.limits from outlast._route r;

create or replace view outlast.rewind as
select substr(c.name, 7) as route, r.id, r.round, r.since, r.until, r.state, r.events, r.sent, r.refused, r.reason, r.actor, r.asked_at, r.ended_at
from outlast._rewind r join outlast._consumer c on c.id = r.consumer;
