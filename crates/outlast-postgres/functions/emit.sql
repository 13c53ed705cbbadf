-- What nearly every event is: JSON without a name of its own. Inlined into what asks it. Where it is false, each refusal has its
-- own words in check.sql.
create or replace function outlast._is_plain(type text, payload text, key text, tenant text, version int) returns boolean
language sql stable parallel safe                -- json is read by a stable function: an immutable one would not be inlined
as $$
  select type ~ '^[a-z0-9._/-]+$' collate "C" and octet_length(type) <= 100 and version between 1 and 32767
    and (tenant = '' or octet_length(tenant) <= 200 and tenant !~ '[[:cntrl:]]')
    -- Longer ones are looked at one by one, also for whether their routes could ever send them.
    and (key is null or octet_length(key) <= 300)
    and octet_length(payload) <= 16384 and strpos(payload, '\u0000') = 0
    and (octet_length(payload) <= 200
         or octet_length(payload) - octet_length(replace(replace(payload, '[', ''), '{', '')) <= 100)
    and payload::json is not null
$$;

-- The public door of the log. One statement of the caller's own transaction; durable when that commits, gone when it
-- does not. Exactly the given bytes are stored and delivered. Never notifies workers that are awake, and none at all
-- unless the setting wake says so: that would serialise commits. A payload with a codec_key is ciphertext: its content type
-- is that of the plain text, and is not looked for in it. Its bytes differ each time, so who emits it with a dedup key
-- gives the digest (rule 2): a MAC, because a plain hash of what was erased could still be guessed at.
create or replace function outlast.emit(
  type text, payload text default null, key text default null, tenant text default '', dedup text default null,
  version int default 1, event_id uuid default null, source text default null, subject text default null,
  aggregate_version bigint default null, actor text default null, correlation_id uuid default null,
  causation_id uuid default null, traceparent text default null, headers jsonb default null, bytes bytea default null,
  content_type text default 'application/json', codec_key text default null, strict_key boolean default false,
  digest bytea default null,
  out id uuid, out new boolean, out conflict boolean, out expired boolean, out first_digest bytea, out xid xid8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _plain boolean;
  _ok boolean;
  _bytes bytea := emit.bytes;
  _digest bytea;
  _first record;
  _at timestamptz;
  _log_id bigint;
  _ms bigint;
  _seq bigint;
begin
  -- What nearly every emit is: JSON without a name of its own. Asked by one expression, because a statement of PL/pgSQL
  -- costs its preparation in every transaction, and a function called by it once more. Whoever fails here is looked at
  -- below, where each refusal has its own words.
  begin
    _plain := coalesce(emit.dedup, emit.source, emit.subject, emit.actor, emit.traceparent, emit.codec_key) is null
      and emit.event_id is null and emit.headers is null and emit.bytes is null and emit.digest is null and not emit.strict_key
      and emit.content_type = 'application/json'
      and outlast._is_plain(emit.type, emit.payload, emit.key, emit.tenant, emit.version) and not pg_is_in_recovery();
  exception when invalid_text_representation then _plain := false;
  end;
  if _plain then
    xid := pg_current_xact_id();                 -- before the id is drawn: windows depend on it
    _log_id := nextval('outlast._event_id');
    _at := outlast.clock();                      -- after the id is drawn: readers choose leaves by it
    _ms := floor(date_part('epoch', _at) * 1000)::bigint;
    -- What _v7 and _log_slot do, with the milliseconds read once.
    id := (lpad(to_hex(_ms), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid;
    insert into outlast._event (slot, schema_version, id, xid, event_id, emitted_at, aggregate_version, correlation_id,
      causation_id, type, tenant, key, content_type, payload)
    values (_ms / 43200000 & 15, emit.version, _log_id, emit.xid, emit.id, _at, emit.aggregate_version, emit.correlation_id,
      emit.causation_id, emit.type, emit.tenant, emit.key, 'application/json', convert_to(emit.payload, 'UTF8'));
    new := true;
    conflict := false;
    expired := false;
    _ok := outlast._woken();
    return;
  end if;

  if pg_is_in_recovery() then
    raise exception 'emit %: this server is a standby', emit.type using errcode = 'OL009', hint = 'connect to the primary';
  end if;
  _ok := outlast._check_envelope(emit.type, emit.tenant, emit.key, emit.dedup, emit.version, emit.content_type);
  if coalesce(emit.source, emit.subject, emit.actor, emit.traceparent, emit.codec_key) is not null or emit.headers is not null then
    _ok := outlast._check_about(emit.type, emit.source, emit.subject, emit.actor, emit.traceparent, emit.codec_key, emit.headers);
  end if;
  if (emit.payload is null) = (emit.bytes is null) then
    raise exception 'emit %: give either payload or bytes', emit.type using errcode = 'OL005';
  end if;
  if _bytes is null then _bytes := convert_to(emit.payload, 'UTF8'); end if;
  _ok := outlast._check_payload(emit.type, case when emit.codec_key is null then emit.content_type else 'application/octet-stream' end, _bytes);
  if octet_length(_bytes) > 16384 or emit.headers is not null
    or octet_length(concat(emit.tenant, emit.key, emit.source, emit.subject, emit.actor, emit.codec_key, emit.content_type)) > 300 then
    _ok := outlast._check_sendable(emit.type, emit.tenant, emit.key, emit.source, emit.subject, emit.actor,
      outlast._traceparent(emit.traceparent), emit.codec_key, emit.content_type, emit.headers, octet_length(_bytes));
  end if;
  if emit.digest is not null and octet_length(emit.digest) not between 16 and 64 then
    raise exception 'emit %: a digest of % bytes is not 16 to 64', emit.type, octet_length(emit.digest) using errcode = 'OL005';
  end if;

  if emit.strict_key and emit.key is null then
    raise exception 'emit %: strict_key numbers the events of a key, and there is none', emit.type using errcode = 'OL005';
  end if;

  xid := pg_current_xact_id();                   -- before the id is drawn: windows depend on it
  expired := false;
  conflict := false;

  if emit.event_id is not null then
    perform outlast._check_event_id(emit.event_id);
  end if;

  _log_id := nextval('outlast._event_id');
  _at := outlast.clock();                        -- after the id is drawn: readers choose leaves by it
  id := coalesce(emit.event_id, outlast._v7(_at));

  -- Two statements each, not one: a key that commits while we wait is invisible to the statement that waited.
  if emit.event_id is not null then
    -- An own id is a key like another, of no type and for every tenant: the log has no unique index over its leaves, and
    -- above READ COMMITTED a look into it would not see who was quicker.
    _digest := coalesce(emit.digest, outlast._digest(emit.type, emit.content_type, _bytes));
    insert into outlast._dedup as d (tenant, type, key, rule, digest, event_id, taken_at)
    values ('', '', emit.event_id::text, case when emit.digest is null then 1 else 2 end, _digest, emit.event_id, _at)
    on conflict do nothing;
    if not found then
      select d.digest, d.event_id, d.taken_at into strict _first
      from outlast._dedup d
      where d.tenant = '' and d.type = '' and d.key = emit.event_id::text;
      new := false;
      conflict := _first.digest <> _digest;
      first_digest := _first.digest;
      return;
    end if;
    first_digest := _digest;
  end if;
  if emit.dedup is not null then
    _digest := coalesce(emit.digest, outlast._digest(emit.type, emit.content_type, _bytes));
    insert into outlast._dedup as d (tenant, type, key, rule, digest, event_id, taken_at)
    values (emit.tenant, emit.type, emit.dedup, case when emit.digest is null then 1 else 2 end, _digest, emit.id, _at)
    on conflict do nothing;
    if not found then
      select d.digest, d.event_id, d.taken_at into strict _first
      from outlast._dedup d
      where d.tenant = emit.tenant and d.type = emit.type and d.key = emit.dedup;
      if emit.event_id is not null then
        -- No event of this id will be written now.
        delete from outlast._dedup d where d.tenant = '' and d.type = '' and d.key = emit.event_id::text;
      end if;
      id := _first.event_id;
      new := false;
      expired := _first.taken_at < _at - outlast._setting_interval('retention.dedup');
      conflict := not expired and _first.digest <> _digest;
      first_digest := _first.digest;
      return;
    end if;
    first_digest := _digest;
  end if;

  if emit.strict_key then
    -- Waits for whoever emits for this key; the id is drawn after that, so that both count in one order.
    insert into outlast._key_seq as k (tenant, type, key, last) values (emit.tenant, emit.type, emit.key, 1)
    on conflict (tenant, type, key) do update set last = k.last + 1
    returning k.last into _seq;
    select nextval('outlast._event_id'), outlast.clock() into _log_id, _at;
  end if;

  insert into outlast._event (slot, schema_version, id, xid, event_id, emitted_at, aggregate_version, key_seq, correlation_id,
    causation_id, type, tenant, key, source, subject, actor, traceparent, content_type, codec_key, headers, payload)
  values (outlast._log_slot(_at), emit.version, _log_id, emit.xid, emit.id, _at, emit.aggregate_version, _seq,
    emit.correlation_id, emit.causation_id, emit.type, emit.tenant, emit.key, emit.source, emit.subject, emit.actor,
    outlast._traceparent(emit.traceparent), emit.content_type, emit.codec_key, emit.headers, _bytes);
  _ok := outlast._woken();
  new := true;
end $$;

-- The same for the adapters of Rust, whose statements are parsed each time they are sent (so they are right behind any
-- pooler): named arguments and the defaults of those left out cost them twice what is done here. Answers as `emit` does, as
-- text: id, new, conflict, expired, first digest, xid.
create or replace function outlast._emit(type text, payload text, key text, tenant text, version text) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _plain boolean;
  _ok boolean;
  _xid xid8;
  _log_id bigint;
  _at timestamptz;
  _ms bigint;
  _id uuid;
begin
  begin
    _plain := outlast._is_plain(_emit.type, _emit.payload, _emit.key, _emit.tenant, _emit.version::int) and not pg_is_in_recovery();
  exception when invalid_text_representation then _plain := false;
  end;
  if not coalesce(_plain, false) then
    return outlast.emit(type => _emit.type, payload => _emit.payload, key => _emit.key, tenant => _emit.tenant, version => _emit.version::int)::text;
  end if;
  -- As in `emit`: the transaction id before the log id, the time after it.
  _xid := pg_current_xact_id();
  _log_id := nextval('outlast._event_id');
  _at := outlast.clock();
  _ms := floor(date_part('epoch', _at) * 1000)::bigint;
  _id := (lpad(to_hex(_ms), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid;
  insert into outlast._event (slot, schema_version, id, xid, event_id, emitted_at, type, tenant, key, content_type, payload)
  values (_ms / 43200000 & 15, _emit.version::int, _log_id, _xid, _id, _at, _emit.type, _emit.tenant, _emit.key,
    'application/json', convert_to(_emit.payload, 'UTF8'));
  _ok := outlast._woken();
  return _id || ',t,f,f,,' || _xid;
end $$;

-- The same for a caller that has jsonb at hand. Key order and number spelling are then jsonb's, not the caller's.
create or replace function outlast.emit(
  type text, payload jsonb, key text default null, tenant text default '', dedup text default null,
  version int default 1, event_id uuid default null, source text default null, subject text default null,
  aggregate_version bigint default null, actor text default null, correlation_id uuid default null,
  causation_id uuid default null, traceparent text default null, headers jsonb default null,
  codec_key text default null, strict_key boolean default false,
  out id uuid, out new boolean, out conflict boolean, out expired boolean, out first_digest bytea, out xid xid8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  select e.* into id, new, conflict, expired, first_digest, xid from outlast.emit(type => emit.type, payload => emit.payload::text, key => emit.key,
    tenant => emit.tenant, dedup => emit.dedup, version => emit.version, event_id => emit.event_id,
    source => emit.source, subject => emit.subject, aggregate_version => emit.aggregate_version, actor => emit.actor,
    correlation_id => emit.correlation_id, causation_id => emit.causation_id, traceparent => emit.traceparent,
    headers => emit.headers, codec_key => emit.codec_key, strict_key => emit.strict_key) e;
end $$;

-- Many events of one type in one statement, in the order of the arrays.
create or replace function outlast.emit_all(
  type text, payloads text[], keys text[] default null, tenant text default '', version int default 1,
  source text default null, actor text default null, correlation_id uuid default null,
  causation_id uuid default null, traceparent text default null)
returns table (ord int, id uuid, xid xid8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _plain boolean;
  _ok boolean;
  _xid xid8;
  _n int := coalesce(cardinality(emit_all.payloads), 0);
  _payload text;
  _ids bigint[];
  _at timestamptz;
  _ms bigint;
  _slot smallint;
  _trace text := outlast._traceparent(emit_all.traceparent);
begin
  if pg_is_in_recovery() then
    raise exception 'emit_all %: this server is a standby', emit_all.type using errcode = 'OL009', hint = 'connect to the primary';
  end if;
  if emit_all.payloads is null then
    raise exception 'emit_all %: payloads is null', emit_all.type using errcode = 'OL005';
  end if;
  perform outlast._check_about(emit_all.type, emit_all.source, null, emit_all.actor, emit_all.traceparent, null, null);
  if emit_all.keys is not null and cardinality(emit_all.keys) <> _n then
    raise exception 'emit_all %: % payloads and % keys', emit_all.type, _n, cardinality(emit_all.keys) using errcode = 'OL005';
  end if;
  -- All of them at once; whatever is odd is looked at one by one, for its own words.
  begin
    _plain := octet_length(concat(emit_all.tenant, emit_all.source, emit_all.actor)) <= 300 and not exists (
      select from unnest(emit_all.payloads, emit_all.keys) u (payload, key)
      where (octet_length(u.payload) <= 16384 and (u.key is null or octet_length(u.key) <= 300)
        and strpos(u.payload, '\u0000') = 0
        and (octet_length(u.payload) <= 200
             or octet_length(u.payload) - octet_length(replace(replace(u.payload, '[', ''), '{', '')) <= 100)
        and u.payload::json is not null) is not true);
  exception when invalid_text_representation then _plain := false;
  end;
  perform outlast._check_envelope(emit_all.type, emit_all.tenant, k, null, emit_all.version, 'application/json')
  from unnest(case when _plain then array[null::text] else coalesce(emit_all.keys, array[null::text]) end) k;
  if not _plain then
    foreach _payload in array emit_all.payloads loop
      if _payload is null then
        raise exception 'emit_all %: a payload is null', emit_all.type using errcode = 'OL005';
      end if;
      perform outlast._check_payload(emit_all.type, 'application/json', convert_to(_payload, 'UTF8'));
    end loop;
    perform outlast._check_sendable(emit_all.type, emit_all.tenant, u.key, emit_all.source, null, emit_all.actor, _trace, null,
      'application/json', null, octet_length(u.payload))
    from unnest(emit_all.payloads, emit_all.keys) u (payload, key)
    where octet_length(u.payload) > 16384 or octet_length(concat(emit_all.tenant, u.key, emit_all.source, emit_all.actor)) > 300;
  end if;
  _xid := pg_current_xact_id();
  _ok := outlast._woken();
  -- The ids are drawn first and the time is read after the last of them, for all.
  _ids := array(select nextval('outlast._event_id') from generate_series(1, _n));
  _at := outlast.clock();
  _ms := floor(date_part('epoch', _at) * 1000)::bigint;
  _slot := outlast._log_slot(_at);
  return query
    with given as (
      select u.ord::int as ord, u.log_id, u.payload, u.key,
             -- As _v7, with the place in the call for its first random bits: ids that rise are written at the right end of
             -- the indexes, here and in the inbox.
             (lpad(to_hex(_ms), 12, '0') || '7' || lpad(to_hex((u.ord - 1) * 4096 / _n), 3, '0')
               || substr(gen_random_uuid()::text, 19))::uuid as event_id
      from unnest(_ids, emit_all.payloads, emit_all.keys) with ordinality u (log_id, payload, key, ord)
    ), written as (
      insert into outlast._event (slot, schema_version, id, xid, event_id, emitted_at, correlation_id, causation_id,
        type, tenant, key, source, actor, traceparent, content_type, payload)
      select _slot, emit_all.version, g.log_id, _xid, g.event_id, _at, emit_all.correlation_id,
        emit_all.causation_id, emit_all.type, emit_all.tenant, g.key, emit_all.source, emit_all.actor,
        _trace, 'application/json', convert_to(g.payload, 'UTF8')
      from given g order by g.ord
    )
    select g.ord, g.event_id, _xid from given g order by g.ord;
end $$;
