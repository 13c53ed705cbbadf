-- What emit refuses, each with an error code of its own. Nothing is written before these passed. They answer true or
-- raise, so that emit can ask them in an expression: PERFORM costs it 5 µs more.

-- What an event is called and whose it is.
create or replace function outlast._check_envelope(
  type text, tenant text, key text, dedup text, version int, content_type text) returns boolean
language plpgsql immutable parallel safe
as $$
begin
  -- Not a regular expression: bounded repeats cost 20 µs an emit.
  if type is null or length(type) not between 1 and 100 or translate(type, 'abcdefghijklmnopqrstuvwxyz0123456789._/-', '') <> '' then
    raise exception 'event type % is not 1 to 100 of a-z 0-9 . _ / -', quote_nullable(left(type, 120)) using errcode = 'OL005';
  end if;
  if tenant is null or length(tenant) > 200 or (tenant <> '' and tenant ~ '[[:cntrl:]]') then
    raise exception 'emit %: tenant is null, longer than 200 characters, or has control characters', type using errcode = 'OL005';
  end if;
  if length(key) > 500 or length(dedup) > 500 then
    raise exception 'emit %: a key is longer than 500 characters', type using errcode = 'OL005';
  end if;
  if version is null or version not between 1 and 32767 then
    raise exception 'emit %: version % is not between 1 and 32767', type, version using errcode = 'OL005';
  end if;
  if content_type is null or content_type <> 'application/json' and content_type !~ '^[a-z0-9!#$&^_.+-]{1,80}/[a-z0-9!#$&^_.+-]{1,80}( *;[ -~]{0,200})?$' then
    raise exception 'emit %: unknown content type %', type, quote_nullable(left(content_type, 120)) using errcode = 'OL005';
  end if;
  return true;
end $$;

-- What may stand beside it. Bounded too: all of it is copied to every reader.
create or replace function outlast._check_about(
  type text, source text, subject text, actor text, traceparent text, codec_key text, headers jsonb) returns boolean
language plpgsql immutable parallel safe
as $$
begin
  if greatest(length(source), length(subject), length(actor), length(traceparent), length(codec_key)) > 500 then
    raise exception 'emit %: source, subject, actor, traceparent or codec key is longer than 500 characters', type using errcode = 'OL005';
  end if;
  if octet_length(headers::text) > 16384 then
    raise exception 'emit %: headers of % bytes are over the limit of 16384', type, octet_length(headers::text) using errcode = 'OL005';
  end if;
  return true;
end $$;

-- A W3C traceparent; what is none is dropped, because nobody's business shall fail for a trace. The rule is that of
-- `outlast_core::trace`. Not a regular expression: see above.
create or replace function outlast._traceparent(t text) returns text
language sql immutable parallel safe
as $$
  select case when length(t) between 55 and 500 and octet_length(t) = length(t)
    and substr(t, 3, 1) = '-' and substr(t, 36, 1) = '-' and substr(t, 53, 1) = '-'
    and translate(left(t, 2) || substr(t, 4, 32) || substr(t, 37, 16) || substr(t, 54, 2), '0123456789abcdef', '') = ''
    and left(t, 2) <> 'ff' and (length(t) = 55 or left(t, 2) <> '00' and substr(t, 56, 1) = '-')
    and translate(substr(t, 4, 32), '0', '') <> '' and translate(substr(t, 37, 16), '0', '') <> ''
    then t end
$$;

-- The bytes: their size for all, their readability for JSON. They are checked, never changed.
create or replace function outlast._check_payload(type text, content_type text, bytes bytea) returns boolean
language plpgsql immutable parallel safe
as $$
declare
  txt text;
  bare text;
  size int := octet_length(bytes);
begin
  if size > 262144 then
    raise exception 'emit %: payload of % bytes is over the limit of 262144', type, size
      using errcode = 'OL006', hint = 'store the content elsewhere and emit a reference to it';
  end if;
  if content_type <> 'application/json' and content_type !~ '^[^;]*[/+]json *(;|$)' then return true; end if;
  begin
    txt := convert_from(bytes, 'UTF8');
    -- Deeper than 100 no reader can be trusted with. Strings go first, then the innermost pairs, once a level.
    if size > 200 and length(txt) - length(translate(txt, '[{', '')) > 100 then
      bare := regexp_replace(regexp_replace(txt, '"(\\.|[^"\\])*"', '', 'g'), '[^][{}]', '', 'g');
      for i in 1..100 loop
        exit when bare = '';
        bare := replace(replace(bare, '[]', ''), '{}', '');
      end loop;
      if bare <> '' then
        raise exception 'emit %: JSON is deeper than 100 or its brackets do not match', type using errcode = 'OL007';
      end if;
    end if;
    perform txt::json;
  exception
    when character_not_in_repertoire or untranslatable_character then
      raise exception 'emit %: payload is not UTF-8', type using errcode = 'OL007';
    when invalid_text_representation then
      raise exception 'emit %: payload is not JSON: %', type, left(sqlerrm, 200) using errcode = 'OL007';
  end;
  if strpos(txt, '\u0000') > 0 and txt ~ '(^|[^\\])(\\\\)*\\u0000' then
    raise exception 'emit %: JSON holds a NUL character (\u0000), which PostgreSQL text cannot', type using errcode = 'OL007';
  end if;
  return true;
end $$;

-- A caller's own event id: a v7 whose time lies where the log still has a place for it.
create or replace function outlast._check_event_id(id uuid) returns void
language plpgsql volatile
as $$
declare
  at timestamptz;
begin
  if substr(id::text, 15, 1) <> '7' or substr(id::text, 20, 1) not in ('8', '9', 'a', 'b') then
    raise exception 'event id % is not a version 7 UUID', id using errcode = 'OL008';
  end if;
  at := outlast._v7_time(id);
  if at < outlast.clock() - interval '7 days' or at > outlast.clock() + interval '12 hours' then
    raise exception 'event id % was minted at %, outside of the last 7 days', id, at using errcode = 'OL008';
  end if;
end $$;

-- Digest rule 1.
create or replace function outlast._digest(type text, content_type text, payload bytea) returns bytea
language plpgsql stable parallel safe
as $$
begin
  return sha256(convert_to(type, 'UTF8') || '\x00'::bytea || convert_to(content_type, 'UTF8') || '\x00'::bytea || payload);
end $$;
