-- The door for jobs. One statement of the caller's own transaction; durable when that commits, gone when it does not.

-- What a key stands for, rule 1: the name and the content. Of JSON without its nulls and in one spelling (order of fields,
-- spaces, escapes, 1.0 for 1), so that another language, or a newer release with one more empty field, says the same.
create or replace function outlast._job_digest(name text, content_type text, payload bytea) returns bytea
language plpgsql immutable
as $$
declare
  txt text;
begin
  if content_type = 'application/json' then
    txt := convert_from(payload, 'UTF8');
    begin
      -- Numbers that would be written out in thousands of digits are not looked into.
      if txt !~ '[0-9]{250}|[eE][+-]?[0-9]{3}' then
        txt := jsonb_strip_nulls(txt::jsonb)::text;
        if txt ~ '[.][0-9]*0' then
          txt := regexp_replace(txt, '("(\\.|[^"\\])*")|([.][0-9]*[1-9])0+(?![0-9])|[.]0+(?![0-9])', '\1\3', 'g');
        end if;
        return sha256(convert_to(name || e'\n' || txt, 'UTF8'));
      end if;
    exception
      -- Half a surrogate: JSON, but nothing that PostgreSQL can read. Its bytes stand for themselves.
      when invalid_text_representation or untranslatable_character or numeric_value_out_of_range then null;
    end;
  end if;
  return sha256(convert_to(name || e'\n' || content_type || e'\n', 'UTF8') || payload);
end $$;

-- Takes an identity for a job, or says whose it is already. Two statements: a key that commits while we wait is invisible to
-- the statement that waited.
create or replace function outlast._take_key(
  tenant text, kind "char", name text, key text, job uuid, digest bytea, rule int, at timestamptz, lives interval,
  out id uuid, out new boolean, out conflict boolean, out expired boolean, out first_digest bytea)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  k outlast._job_key;
begin
  loop
    insert into outlast._job_key (tenant, kind, name, key, job, rule, digest, taken_at, lives_until)
    values (_take_key.tenant, _take_key.kind, _take_key.name, _take_key.key, _take_key.job, _take_key.rule, _take_key.digest,
            _take_key.at, _take_key.at + _take_key.lives)
    on conflict do nothing;
    new := found;
    if new then
      id := job;
      conflict := false;
      expired := false;
      first_digest := digest;
      return;
    end if;
    select * into k from outlast._job_key x
    where x.tenant = _take_key.tenant and x.kind = _take_key.kind and x.name = _take_key.name and x.key = _take_key.key;
    exit when found;                             -- else it was forgotten just now
  end loop;
  id := k.job;
  expired := coalesce(k.lives_until < at, false);
  conflict := not expired and k.digest <> _take_key.digest;
  first_digest := k.digest;
end $$;

-- Accepts a job: work that may run twice, once on record. `after_ms` or `at`: not before then. Of two of a tenant the one
-- with the lower priority runs sooner. With a key the same content is the same job, whatever has become of it; other content
-- is a `conflict`, and after lifetime_ms (retention.job_key, if not told; 0: for ever) the answer is `expired`.
create or replace function outlast.enqueue(
  name text, payload text default null, key text default null, tenant text default '', after_ms bigint default null,
  at timestamptz default null, priority int default 0, version int default 1, attempts int default null,
  lifetime_ms bigint default null, source text default null, actor text default null, correlation_id uuid default null,
  causation_id uuid default null, traceparent text default null, bytes bytea default null,
  content_type text default 'application/json', codec_key text default null, digest bytea default null,
  out id uuid, out new boolean, out conflict boolean, out expired boolean, out first_digest bytea, out xid xid8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _plain boolean;
  _ok boolean;
  _bytes bytea := enqueue.bytes;
  _at timestamptz;
  _due timestamptz;
begin
  -- What nearly every call is, asked by one expression, as emit does. Whoever fails here is looked at below, where each
  -- refusal has its own words.
  begin
    _plain := enqueue.name ~ '^[a-z0-9._/-]+$' collate "C" and octet_length(enqueue.name) <= 100
      and coalesce(enqueue.source, enqueue.actor, enqueue.traceparent, enqueue.codec_key) is null
      and enqueue.bytes is null and enqueue.digest is null and enqueue.at is null
      and enqueue.content_type = 'application/json' and enqueue.version between 1 and 32767
      and enqueue.priority between -100 and 100 and coalesce(enqueue.attempts, 1) between 1 and 1000
      and coalesce(enqueue.after_ms, 0) between 0 and 315360000000 and coalesce(enqueue.lifetime_ms, 0) between 0 and 315360000000
      and (enqueue.tenant = '' or octet_length(enqueue.tenant) <= 200 and enqueue.tenant !~ '[[:cntrl:]]')
      and (enqueue.key is null or octet_length(enqueue.key) between 1 and 500)
      and octet_length(enqueue.payload) <= 262144 and strpos(enqueue.payload, '\u0000') = 0
      and (octet_length(enqueue.payload) <= 200
           or octet_length(enqueue.payload) - octet_length(replace(replace(enqueue.payload, '[', ''), '{', '')) <= 100)
      and enqueue.payload::json is not null and not pg_is_in_recovery();
  exception when invalid_text_representation then _plain := false;
  end;
  if _plain then
    _bytes := convert_to(enqueue.payload, 'UTF8');
  else
    if pg_is_in_recovery() then
      raise exception 'enqueue %: this server is a standby', enqueue.name using errcode = 'OL009', hint = 'connect to the primary';
    end if;
    _ok := outlast._check_job(enqueue.name, enqueue.tenant, enqueue.key, enqueue.version, enqueue.content_type, enqueue.priority,
      enqueue.attempts, enqueue.after_ms, enqueue.at, enqueue.lifetime_ms);
    if coalesce(enqueue.source, enqueue.actor, enqueue.traceparent, enqueue.codec_key) is not null then
      _ok := outlast._check_about(enqueue.name, enqueue.source, null, enqueue.actor, enqueue.traceparent, enqueue.codec_key, null);
    end if;
    if (enqueue.payload is null) = (enqueue.bytes is null) then
      raise exception 'enqueue %: give either payload or bytes', enqueue.name using errcode = 'OL005';
    end if;
    if _bytes is null then _bytes := convert_to(enqueue.payload, 'UTF8'); end if;
    _ok := outlast._check_payload(enqueue.name, case when enqueue.codec_key is null then enqueue.content_type
      else 'application/octet-stream' end, _bytes);
    if enqueue.digest is not null and octet_length(enqueue.digest) not between 16 and 64 then
      raise exception 'enqueue %: a digest of % bytes is not 16 to 64', enqueue.name, octet_length(enqueue.digest) using errcode = 'OL005';
    end if;
  end if;
  xid := pg_current_xact_id();
  _at := outlast.clock();
  id := (lpad(to_hex(floor(date_part('epoch', _at) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid;
  if enqueue.key is null then
    new := true;
    conflict := false;
    expired := false;
  else
    select t.id, t.new, t.conflict, t.expired, t.first_digest into id, new, conflict, expired, first_digest
    from outlast._take_key(enqueue.tenant, 'j', enqueue.name, enqueue.key, enqueue.id,
      coalesce(enqueue.digest, outlast._job_digest(enqueue.name, enqueue.content_type, _bytes)),
      case when enqueue.digest is null then 1 else 2 end, _at,
      case when enqueue.lifetime_ms is null then outlast._setting_interval('retention.job_key')
           when enqueue.lifetime_ms > 0 then make_interval(secs => enqueue.lifetime_ms / 1000.0) end) t;
    if not new then return; end if;
  end if;
  insert into outlast._job (id, kind, name, tenant, key, account, priority, attempts, schema_version, accepted_at,
    correlation_id, causation_id, source, actor, traceparent, content_type, codec_key, payload)
  values (enqueue.id, 'j', enqueue.name, enqueue.tenant, enqueue.key, '', enqueue.priority, enqueue.attempts, enqueue.version, _at,
    enqueue.correlation_id, enqueue.causation_id, enqueue.source, enqueue.actor, outlast._traceparent(enqueue.traceparent),
    enqueue.content_type, enqueue.codec_key, _bytes);
  if enqueue.at is not null or enqueue.after_ms > 0 then
    _due := coalesce(enqueue.at, _at + make_interval(secs => enqueue.after_ms / 1000.0));
  end if;
  if _due > _at then
    insert into outlast._job_later (id, due_at, name, alone) values (enqueue.id, _due, enqueue.name, false);
    -- Due before everybody looks again by himself: that is news, too.
    if _due < _at + interval '10 seconds' then
      _ok := nextval('outlast._event_id') is not null;
    end if;
  else
    insert into outlast._job_ready (seq, priority, id, name, account, tenant)
    values (nextval('outlast._event_id'), enqueue.priority, enqueue.id, enqueue.name, '', enqueue.tenant);
  end if;
  _ok := outlast._woken();
end $$;

-- What enqueue refuses besides what emit does. Answers true or raises.
create or replace function outlast._check_job(
  name text, tenant text, key text, version int, content_type text, priority int, attempts int, after_ms bigint,
  at timestamptz, lifetime_ms bigint) returns boolean
language plpgsql stable
as $$
begin
  if name is null or length(name) not between 1 and 100 or translate(name, 'abcdefghijklmnopqrstuvwxyz0123456789._/-', '') <> '' then
    raise exception 'job name % is not 1 to 100 of a-z 0-9 . _ / -', quote_nullable(left(name, 120)) using errcode = 'OL005';
  end if;
  if key = '' then
    raise exception 'enqueue %: an empty key: give none, or one that names the job', name using errcode = 'OL005';
  end if;
  perform outlast._check_envelope(name, tenant, key, null, version, content_type);
  if priority is null or priority not between -100 and 100 then
    raise exception 'enqueue %: priority % is not between -100 (soonest) and 100', name, priority using errcode = 'OL005';
  end if;
  if attempts not between 1 and 1000 then
    raise exception 'enqueue %: attempts of % are not between 1 and 1000', name, attempts using errcode = 'OL005';
  end if;
  if after_ms is not null and at is not null then
    raise exception 'enqueue %: give either after_ms or at', name using errcode = 'OL005';
  end if;
  if after_ms not between 0 and 315360000000 or at > outlast.clock() + interval '3650 days' or at = '-infinity' then
    raise exception 'enqueue %: it is to run more than ten years from now, or before all time', name using errcode = 'OL005';
  end if;
  if lifetime_ms not between 0 and 315360000000 then
    raise exception 'enqueue %: a lifetime of % ms is not between 0 (for ever) and ten years', name, lifetime_ms using errcode = 'OL005';
  end if;
  return true;
end $$;

-- What enqueue would refuse of this, as an error code; null: nothing. For whoever looks at another system's table before it moves in.
create or replace function outlast._unfit(name text, payload text, key text, tenant text, at timestamptz, priority int) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if payload is null then return 'OL005'; end if;
  perform outlast._check_job(_unfit.name, _unfit.tenant, _unfit.key, 1, 'application/json', _unfit.priority, null, null, _unfit.at, null);
  perform outlast._check_payload(_unfit.name, 'application/json', convert_to(_unfit.payload, 'UTF8'));
  return null;
exception when others then
  if sqlstate not like 'OL%' then raise; end if;
  return sqlstate;
end $$;
