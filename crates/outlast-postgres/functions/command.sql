-- The door for commands, and what is told of them by key. A command is accepted in the caller's transaction and never changed.

-- What the provider is told, so that it knows the same command again: a version 8 UUID out of the identity alone, the same in
-- every try, after a replay, and when the caller submits again after a restore.
create or replace function outlast._provider_key(tenant text, name text, key text) returns text
language sql immutable parallel safe
as $$
  select encode(set_byte(set_byte(h.b, 6, get_byte(h.b, 6) & 15 | 128), 8, get_byte(h.b, 8) & 63 | 128), 'hex')::uuid::text
  from (select substr(sha256(convert_to(
    length(tenant) || ':' || tenant || ',' || length(name) || ':' || name || ',' || length(key) || ':' || key, 'UTF8')), 1, 16)) h (b)
$$;

-- Acceptance and settlement of one identity take turns.
create or replace function outlast._identity_lock(tenant text, name text, key text) returns bigint
language sql immutable parallel safe
as $$ select hashtextextended(outlast._provider_key(tenant, name, key), outlast._lock_room(7316)) $$;

-- Accepts a command: an instruction to a provider that must not be repeated blindly. The key is its identity, for ever unless
-- lifetime_ms says otherwise (then the answer is `expired`, never another command). The same key with the same content is the
-- same command, whatever has become of it; with other content a `conflict`. `supersedes`: of the same name and tenant; it is
-- cancelled in this transaction, as far as that still goes. An encrypted one has `bytes` in place of the payload, the key that they need,
-- and the digest that tells its content from another: a MAC of the plain JSON.
create or replace function outlast.command(
  name text, payload text, key text, tenant text default '', account text default null, exclusive text default null, after_ms bigint default null,
  at timestamptz default null, priority int default 0, version int default 1, attempts int default null,
  lifetime_ms bigint default 0, supersedes uuid default null, source text default null, actor text default null,
  correlation_id uuid default null, causation_id uuid default null, traceparent text default null,
  bytes bytea default null, codec_key text default null, digest bytea default null,
  out id uuid, out new boolean, out conflict boolean, out expired boolean, out first_digest bytea, out xid xid8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _bytes bytea := coalesce(command.bytes, convert_to(command.payload, 'UTF8'));
  _at timestamptz := outlast.clock();
begin
  if pg_is_in_recovery() then
    raise exception 'command %: this server is a standby', command.name using errcode = 'OL009', hint = 'connect to the primary';
  end if;
  perform outlast._check_job(command.name, command.tenant, command.key, command.version, 'application/json', command.priority,
    command.attempts, command.after_ms, command.at, command.lifetime_ms);
  perform outlast._check_about(command.name, command.source, null, command.actor, command.traceparent, command.codec_key, null);
  if command.key is null then
    raise exception 'command %: it has no key, which is its identity', command.name using errcode = 'OL005';
  end if;
  if length(command.name) > 90 then
    raise exception 'command name % is longer than 90: its end is an event of that name with .resolved', command.name using errcode = 'OL005';
  end if;
  if length(command.account) > 200 or command.account ~ '[[:cntrl:]]' then
    raise exception 'command %: the account is longer than 200 characters, or has control characters', command.name using errcode = 'OL005';
  end if;
  if command.exclusive = '' or length(command.exclusive) > 500 then
    raise exception 'command %: the key of exclusion is empty or longer than 500 characters', command.name using errcode = 'OL005';
  end if;
  if (command.payload is null) = (command.bytes is null) then
    raise exception 'command %: give either payload or bytes', command.name using errcode = 'OL005';
  end if;
  if (command.bytes is null) <> (command.codec_key is null) or (command.bytes is null) <> (command.digest is null)
    or octet_length(command.digest) not between 16 and 64 then
    raise exception 'command %: bytes, codec_key and a digest of 16 to 64 bytes belong together', command.name using errcode = 'OL005';
  end if;
  if octet_length(_bytes) > 131072 then
    raise exception 'command %: payload of % bytes is over the limit of 131072', command.name, octet_length(_bytes)
      using errcode = 'OL006', hint = 'store the content elsewhere and give a reference to it';
  end if;
  perform outlast._check_payload(command.name, case when command.codec_key is null then 'application/json' else 'application/octet-stream' end, _bytes);
  if command.supersedes is not null and not exists (
    select from outlast._job j where j.id = command.supersedes and j.kind = 'c' and j.name = command.name and j.tenant = command.tenant) then
    raise exception 'command %: what it supersedes, %, is no command of this name and tenant', command.name, command.supersedes using errcode = 'OL005';
  end if;
  xid := pg_current_xact_id();
  perform pg_advisory_xact_lock(outlast._identity_lock(command.tenant, command.name, command.key));
  select t.id, t.new, t.conflict, t.expired, t.first_digest into id, new, conflict, expired, first_digest
  from outlast._take_key(command.tenant, 'c', command.name, command.key, outlast._v7(_at),
    coalesce(command.digest, outlast._job_digest(command.name, 'application/json', _bytes)),
    case when command.digest is null then 1 else 2 end, _at,
    case when command.lifetime_ms > 0 then make_interval(secs => command.lifetime_ms / 1000.0) end) t;
  if not new then return; end if;
  insert into outlast._job (id, kind, name, tenant, key, account, priority, attempts, schema_version, accepted_at,
    correlation_id, causation_id, source, actor, traceparent, content_type, codec_key, payload)
  values (command.id, 'c', command.name, command.tenant, command.key, coalesce(command.account, ''), command.priority, command.attempts,
    command.version, _at, command.correlation_id, command.causation_id, command.source, command.actor,
    outlast._traceparent(command.traceparent), 'application/json', command.codec_key, _bytes);
  insert into outlast._command (id, provider_key, state, supersedes)
  values (command.id, outlast._provider_key(command.tenant, command.name, command.key), 'waiting', command.supersedes);
  if command.exclusive is not null then
    insert into outlast._exclusive (tenant, key, seq, id) values (command.tenant, command.exclusive, nextval('outlast._event_id'), command.id);
  end if;
  if command.supersedes is not null then
    perform outlast.cancel(command.supersedes, 'superseded by ' || command.id, command.tenant, command.actor);
  end if;
  if outlast._settled_early(command.id) then return; end if;
  if coalesce(command.at, _at + make_interval(secs => command.after_ms / 1000.0)) > _at then
    perform outlast._put_off(command.id, coalesce(command.at - _at, make_interval(secs => command.after_ms / 1000.0)));
  else
    perform outlast._ready(command.id);
  end if;
  perform outlast._woken();
end $$;

-- What was told of this command before it was there. Told alike, it ends with it; told differently, a person must look.
create or replace function outlast._settled_early(id uuid) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  j outlast._job;
  first outlast._settlement;
  others int;
begin
  select * into strict j from outlast._job x where x.id = _settled_early.id;
  if current_setting('transaction_isolation') <> 'read committed' then
    -- As in settle: what was told since this snapshot is there for the index, which raises 40001.
    insert into outlast._settlement (tenant, name, key, nth, state, actor, at) values (j.tenant, j.name, j.key, 1, 'settled', j.id::text, j.accepted_at)
    on conflict do nothing;
    delete from outlast._settlement s where s.tenant = j.tenant and s.name = j.name and s.key = j.key and s.nth = 1 and s.actor = j.id::text;
  end if;
  select * into first from outlast._settlement s
  where s.tenant = j.tenant and s.name = j.name and s.key = j.key order by s.id limit 1;
  if not found then return false; end if;
  select count(*) into others from outlast._settlement s
  where s.tenant = j.tenant and s.name = j.name and s.key = j.key
    and (s.state, coalesce(s.answer, first.answer, '')) <> (first.state, coalesce(first.answer, s.answer, ''));
  insert into outlast._evidence (command, at, what, result, state, moved, reference, reason, digest, actor)
  select j.id, s.at, 'told', s.state, case when others = 0 then first.state else 'waiting' end, others = 0 and s.id = first.id,
         s.reference, s.reason, sha256(s.answer), s.actor
  from outlast._settlement s where s.tenant = j.tenant and s.name = j.name and s.key = j.key order by s.id;
  delete from outlast._settlement s where s.tenant = j.tenant and s.name = j.name and s.key = j.key;
  if others = 0 then
    perform outlast._conclude(j.id, first.state, first.answer, first.reference, first.reason);
  else
    perform outlast._incident(j.id, 'contradicted', 'before it was accepted, its provider had told two ends of it');
  end if;
  return true;
end $$;

-- Tells the end of a command by its key, in the caller's transaction: a webhook's handler, a settlement file, a person with
-- another system's word. It may come before our own answer was recorded (`early`: even before the command; then it is kept until
-- that comes, and from the eighth day on a person must look). Told twice alike it is `same`; against another end it `contradicts`, moves nothing and is put before a person.
-- from: waiting, running, pending, unknown; to: settled, rejected, obsolete.
create or replace function outlast.settle(
  name text, key text, state text default 'settled', answer text default null, reference text default null,
  reason text default null, tenant text default '', actor text default null) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _id uuid;
  _answer bytea := convert_to(settle.answer, 'UTF8');
  _actor text := coalesce(settle.actor, session_user);
begin
  if settle.name is null or settle.key is null or settle.tenant is null then
    raise exception 'settle: name, key or tenant is null' using errcode = 'OL005';
  end if;
  if settle.state is null or settle.state not in ('settled', 'rejected', 'obsolete') then
    raise exception 'settle % %: state % is not settled, rejected or obsolete', settle.name, settle.key, quote_nullable(settle.state) using errcode = 'OL005';
  end if;
  if settle.state <> 'settled' and coalesce(settle.reason, '') = '' then
    raise exception 'settle % %: say why it is %', settle.name, settle.key, settle.state using errcode = 'OL005';
  end if;
  perform outlast._check_answer(settle.name, _answer);
  perform pg_advisory_xact_lock(outlast._identity_lock(settle.tenant, settle.name, settle.key));
  select k.job into _id from outlast._job_key k
  where k.tenant = settle.tenant and k.kind = 'c' and k.name = settle.name and k.key = settle.key;
  if not found then
    if current_setting('transaction_isolation') <> 'read committed' then
      -- This snapshot may be older than the lock. The acceptance that it does not see is there for the index, which raises 40001.
      insert into outlast._job_key (tenant, kind, name, key, job, rule, digest, taken_at)
      values (settle.tenant, 'c', settle.name, settle.key, '00000000-0000-0000-0000-000000000000', 1, '', outlast.clock())
      on conflict do nothing;
      delete from outlast._job_key k
      where k.tenant = settle.tenant and k.kind = 'c' and k.name = settle.name and k.key = settle.key;
    end if;
    insert into outlast._settlement (tenant, name, key, nth, state, answer, reference, reason, actor, at)
    select settle.tenant, settle.name, settle.key, 1 + coalesce(max(s.nth), 0), settle.state, _answer, left(settle.reference, 500),
           outlast._clean(settle.reason), _actor, outlast.clock()
    from outlast._settlement s where s.tenant = settle.tenant and s.name = settle.name and s.key = settle.key
    on conflict do nothing;                      -- above READ COMMITTED: 40001
    return 'early';
  end if;
  perform pg_advisory_xact_lock(outlast._job_lock(_id));
  return outlast._told(_id, 'told', settle.state, _answer, settle.reference, settle.reason, _actor);
end $$;

create or replace function outlast._check_answer(name text, answer bytea) returns void
language plpgsql immutable parallel safe
as $$
begin
  if octet_length(answer) > 65536 then
    raise exception 'command %: an answer of % bytes is over the limit of 65536', name, octet_length(answer) using errcode = 'OL006';
  end if;
  if answer is not null then
    perform outlast._check_payload(name, 'application/json', answer);
  end if;
end $$;

-- What somebody else than the owner of a try says about a command, under its lock.
create or replace function outlast._told(
  id uuid, what text, said text, answer bytea, reference text, reason text, actor text) returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  m outlast._command;
  alike boolean;
begin
  select * into m from outlast._command x where x.id = _told.id for update;
  if not found then
    -- Its history is gone, its identity is not.
    return 'gone';
  end if;
  alike := m.state = said and coalesce(m.answer, answer, '') = coalesce(answer, m.answer, '');
  if m.state in ('settled', 'rejected', 'obsolete', 'cancelled', 'abandoned') then
    -- Also against what a person has given up without knowing: now somebody knows.
    if not alike and said <> 'pending' then
      insert into outlast._contradiction (command, at, state, reason)
      values (_told.id, outlast.clock(), said, format('it is %s, and now was told to be %s', m.state, said)) on conflict do nothing;
    end if;
    perform outlast._witness(m, what, said, false, reference, reason, answer, actor);
    return case when alike then 'same' else 'contradicts' end;
  end if;
  if said = 'pending' then
    if m.state in ('running', 'unknown') then
      perform outlast._pend(m, reference, null);
    end if;
    perform outlast._witness(m, what, said, m.state in ('running', 'unknown'), reference, reason, answer, actor);
    return said;
  end if;
  if m.state = 'pending' and said = 'obsolete' or m.state = 'unknown' and said = 'obsolete' then
    said := 'rejected';                          -- it had no effect, and it was sent
  end if;
  perform outlast._witness(m, what, said, true, reference, reason, answer, actor);
  perform outlast._conclude(_told.id, said, answer, reference, reason);
  return said;
end $$;

-- A line of what happened to a command.
create or replace function outlast._witness(
  m outlast._command, what text, result text, moved boolean, reference text, reason text, answer bytea, actor text) returns void
language sql volatile
as $$
  insert into outlast._evidence (command, at, what, result, state, moved, reference, reason, digest, actor)
  values ((m).id, outlast.clock(), what, result, (m).state, moved, left(reference, 500), outlast._clean(reason), sha256(answer), actor)
$$;

-- The command in the event that tells its end: as it was given, or, where that is encrypted, how to decode it. The bytes come last: whoever
-- reads it finds their end without looking into the key.
create or replace function outlast._command_told(j outlast._job) returns text
language sql stable
as $$
  select case when (j).codec_key is null then '"command":' || convert_from((j).payload, 'UTF8')
    else '"encoded":{"key":' || to_json((j).codec_key)::text || ',"bytes":"' || translate(encode((j).payload, 'base64'), e'\n', '') || '"}' end
$$;

-- The last state, and in the same commit the event that tells it. Whoever had it in hand has it no more.
create or replace function outlast._conclude(id uuid, state text, answer bytea, reference text, reason text) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  j outlast._job;
  how text;
begin
  select * into strict j from outlast._job x where x.id = _conclude.id;
  update outlast._command x
  set was = x.state, state = _conclude.state, version = x.version + 1, answer = _conclude.answer,
      reference = coalesce(left(_conclude.reference, 500), x.reference)
  where x.id = _conclude.id;
  -- In the direction in which they move: who waits here for a promote, or a claim, finds where it has put the row. A claim may also
  -- have put it back.
  loop
    delete from outlast._job_later x where x.id = _conclude.id;
    delete from outlast._job_ready x where x.id = _conclude.id;
    delete from outlast._job_claimed x where x.id = _conclude.id;
    exit when not exists (select from outlast._job_later x where x.id = _conclude.id)
      and not exists (select from outlast._job_ready x where x.id = _conclude.id)
      and not exists (select from outlast._job_claimed x where x.id = _conclude.id);
  end loop;
  update outlast._job_state x set incident_at = null, changed_at = outlast.clock() where x.id = _conclude.id and x.incident_at is not null;
  insert into outlast._job_end (id, at, state, reason)
  values (_conclude.id, outlast.clock(),
    (case state when 'settled' then 't' when 'rejected' then 'r' when 'obsolete' then 'o' when 'cancelled' then 'x' else 'a' end)::"char",
    outlast._clean(_conclude.reason));
  perform outlast._let_go(_conclude.id);
  how := case state
    when 'settled' then '{"settled":' || coalesce(convert_from(_conclude.answer, 'UTF8'), 'null') || '}'
    when 'abandoned' then json_build_object('abandoned', json_build_object('incident', _conclude.id))::text
    else json_build_object(state, coalesce(outlast._clean(_conclude.reason), ''))::text end;
  perform outlast.emit(type => j.name || '.resolved', payload => '{' || outlast._command_told(j) || ',"how":' || how || '}',
    key => j.key, tenant => j.tenant, version => j.schema_version::int, actor => j.actor, source => j.source,
    correlation_id => coalesce(j.correlation_id, j.id), causation_id => j.id, traceparent => j.traceparent);
end $$;

-- A person must look: nothing of it is due until then.
create or replace function outlast._incident(id uuid, class text, reason text) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  delete from outlast._job_ready x where x.id = _incident.id;
  delete from outlast._job_later x where x.id = _incident.id;
  delete from outlast._job_claimed x where x.id = _incident.id;
  insert into outlast._job_state as x (id, class, reason, signature, incident_at, changed_at)
  select j.id, _incident.class, outlast._clean(_incident.reason), outlast._signature(j.name, _incident.class, _incident.reason), outlast.clock(), outlast.clock()
  from outlast._job j where j.id = _incident.id
  on conflict (id) do update set class = excluded.class, reason = excluded.reason, signature = excluded.signature,
    incident_at = excluded.incident_at, changed_at = excluded.changed_at;
end $$;
