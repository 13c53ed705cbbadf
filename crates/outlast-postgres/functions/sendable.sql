-- What a route's broker takes, and the refusal of what it could never take: such an event would never leave the outbox.
--
-- Nothing is asked for an ordinary event: emit comes here with what is longer than any broker minds, and with headers.

-- A relay has found what the broker of a route takes. A broker that changes its mind is found again within a heartbeat.
-- Answers whether it was news.
create or replace function outlast._route_limits(route text, broker text, limits jsonb) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  was jsonb;
begin
  select r.limits into was from outlast._route r where r.name = _route_limits.route and r.broker = _route_limits.broker for update;
  if not found or was is not distinct from _route_limits.limits then return false; end if;
  update outlast._route r set limits = _route_limits.limits where r.name = _route_limits.route;
  perform outlast._audited('route.limits', _route_limits.route,
    jsonb_strip_nulls(jsonb_build_object('was', was, 'becomes', _route_limits.limits)));
  return true;
end $$;

-- How many bytes a text has as an attribute of a message: what is not printable ASCII, and " and %, is three. The rule is that of
-- `outlast_core::broker::Envelope`.
create or replace function outlast._attribute_bytes(t text) returns int
language sql immutable parallel safe
as $$ select 3 * octet_length(t) - 2 * length(regexp_replace(t, '[^!#$&-~]' collate "C", '', 'g')) $$;

-- Refuses an event that one of its routes could never send. What a message has besides counts as 1 KiB and its topic, a little
-- more than it ever is. OL021.
create or replace function outlast._check_sendable(
  type text, tenant text, key text, source text, subject text, actor text, traceparent text, codec_key text, content_type text,
  headers jsonb, size int) returns boolean
language plpgsql stable
as $$
#variable_conflict use_column
declare
  r outlast._route;
  has record;
  own record;
  why text;
begin
  for r in
    select x.* from outlast._route x
    where x.limits is not null and exists (select from unnest(x.types) t (entry) where outlast._matches(_check_sendable.type, t.entry))
    order by x.name
  loop
    -- Names as people know them, with the bytes of the name and of the value as they are sent.
    select count(*) as n, sum(a.name_bytes + a.bytes + 4) as bytes,
           (array_agg(a.what order by a.bytes desc))[1] as longest, max(a.bytes) as longest_bytes,
           (array_agg(a.what order by a.name_bytes desc))[1] as long_name, max(a.name_bytes) as name_bytes
    into has
    from (
      select f.what, 17, outlast._attribute_bytes(f.value)
      from (values ('type', type), ('tenant', tenant), ('key', key), ('source', source), ('subject', subject), ('actor', actor),
                   ('traceparent', traceparent), ('codec key', codec_key), ('content type', content_type)) f (what, value)
      where f.value is not null
      union all
      select 'header ' || h.key, 10 + outlast._attribute_bytes(h.key), outlast._attribute_bytes(h.value)
      from jsonb_each_text(case when jsonb_typeof(headers) = 'object' then headers else '{}' end) h
    ) a (what, name_bytes, bytes);
    select count(*) as n, coalesce(sum(octet_length(o.key) + octet_length(o.value) + 4), 0) as bytes into own
    from jsonb_each_text(r.attributes) o;
    why := case
      when size + has.bytes + own.bytes + octet_length(r.topic) + 1024 > (r.limits ->> 'message_bytes')::bigint then
        format('it has %s bytes with its attributes', size + has.bytes + own.bytes + octet_length(r.topic) + 1024)
        || format(', and %s takes %s', r.broker, r.limits ->> 'message_bytes')
      when has.bytes + own.bytes + octet_length(r.topic) + 1024 > (r.limits ->> 'attribute_bytes')::bigint then
        format('its attributes have %s bytes, and %s takes %s', has.bytes + own.bytes + octet_length(r.topic) + 1024, r.broker,
               r.limits ->> 'attribute_bytes')
      when has.longest_bytes > (r.limits ->> 'value_bytes')::bigint then
        format('its %s has %s bytes as an attribute, and %s takes %s', left(has.longest, 120), has.longest_bytes, r.broker,
               r.limits ->> 'value_bytes')
      when has.name_bytes > (r.limits ->> 'name_bytes')::bigint then
        format('the name of its %s has %s bytes as an attribute, and %s takes %s', left(has.long_name, 120), has.name_bytes, r.broker,
               r.limits ->> 'name_bytes')
      -- Besides what was counted a message has an id, a time, a place, versions, numbers and so on.
      when has.n + own.n + 10 > (r.limits ->> 'attributes')::bigint then
        format('it has %s attributes, and %s takes %s', has.n + own.n + 10, r.broker, r.limits ->> 'attributes')
      when r.ordered and octet_length(concat_ws('/', nullif(tenant, ''), key)) > (r.limits ->> 'key_bytes')::bigint then
        format('its tenant and key have %s bytes, and %s orders by %s', octet_length(concat_ws('/', nullif(tenant, ''), key)), r.broker,
               r.limits ->> 'key_bytes')
    end;
    if why is not null then
      raise exception 'emit %: route % could never send it: %', type, r.name, why
        using errcode = 'OL021', hint = 'make it smaller, or emit a reference to it; `outlast doctor` shows what a route takes';
    end if;
  end loop;
  return true;
end $$;
