-- Endpoints outside: what of theirs has ended, and where they are.

-- Of events that an endpoint has accepted, side by side with the tokens that they run under: those that are not open any
-- more. Sealed first: sealed and parked may have committed side by side, and then it is done.
create or replace function outlast._accepted(consumer int, tokens uuid[], ids uuid[])
returns table (token uuid, id uuid, state text)
language plpgsql stable
set jit = off
as $$
#variable_conflict use_column
declare
  done uuid[] := array(select * from outlast._sealed(_accepted.consumer, _accepted.ids));
begin
  return query
    select w.token, w.id,
           case when w.id = any (done) then 'sealed'
                when p.event_id is not null then 'failed'
                else 'lost' end
    from unnest(_accepted.tokens, _accepted.ids) w (token, id)
    left join outlast._lease l on l.token = w.token
    left join outlast._parked p
      on p.consumer = _accepted.consumer and p.event_id = w.id and p.token is distinct from w.token
    where w.id = any (done) or p.event_id is not null or l.token is null;
end $$;

-- An endpoint as `outlast.toml` says it.
create or replace function outlast._endpoint_said(e outlast._endpoint) returns jsonb
language sql stable parallel safe
as $$ select jsonb_strip_nulls(to_jsonb(e) - 'name' - 'changed_at') $$;

-- Makes an endpoint what this says, or removes the one that was there where it says nothing. With its line in the audit.
create or replace function outlast._set_endpoint(name text, setting jsonb, actor text default null) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  was jsonb := (select outlast._endpoint_said(e) from outlast._endpoint e where e.name = _set_endpoint.name);
begin
  if setting is null then
    delete from outlast._endpoint e where e.name = _set_endpoint.name;
    perform outlast._audited('endpoint.removed', name, jsonb_build_object('was', was), actor);
    return;
  end if;
  perform from outlast._consumer c
  where c.name = 'push/' || _set_endpoint.name
    and (c.ordered <> (setting ->> 'ordered')::boolean
      or c.tenants is distinct from outlast._as_set(array(select jsonb_array_elements_text(setting -> 'tenants'))));
  if found then
    raise exception 'endpoint %: ordered and tenants are what its consumer push/% began with and cannot be changed', name, name
      using errcode = 'OL005', hint = 'give the other kind another name, and retire the consumer of this one';
  end if;
  insert into outlast._endpoint as e
    (name, url, types, key, headers, concurrency, rate, timeout, deadline, ordered, tenants, owner, changed_at)
  select _set_endpoint.name, t.url, t.types, t.key, t.headers, t.concurrency, t.rate, t.timeout, t.deadline, t.ordered,
         t.tenants, t.owner, outlast.clock()
  from jsonb_to_record(setting) t (url text, types text[], key text, headers jsonb, concurrency int, rate int, timeout text,
                                deadline text, ordered boolean, tenants text[], owner text)
  on conflict (name) do update
  set (url, types, key, headers, concurrency, rate, timeout, deadline, ordered, tenants, owner, changed_at)
    = (excluded.url, excluded.types, excluded.key, excluded.headers, excluded.concurrency, excluded.rate, excluded.timeout,
       excluded.deadline, excluded.ordered, excluded.tenants, excluded.owner, excluded.changed_at);
  perform outlast._audited('endpoint.set', name, jsonb_strip_nulls(jsonb_build_object('was', was, 'becomes', setting)), actor);
end $$;
