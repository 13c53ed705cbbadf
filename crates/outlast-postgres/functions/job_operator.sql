-- What applications and people decide about jobs.

-- How a job stands, in the words that everybody uses. `waiting` with an incident waits for a person.
create or replace function outlast._job_status(id uuid)
returns table (state text, reason text, attempt int, due_at timestamptz, ended_at timestamptz, incident_at timestamptz, class text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  e outlast._job_end;
  s outlast._job_state;
  l outlast._job_later;
begin
  if not exists (select from outlast._job j where j.id = _job_status.id) then return; end if;
  select * into s from outlast._job_state x where x.id = _job_status.id;
  attempt := coalesce(s.failures, 0);
  class := s.class;
  select * into e from outlast._job_end x where x.id = _job_status.id;
  if found then
    state := case e.state when 'd' then 'done' when 's' then 'skipped' when 'x' then 'cancelled' when 'a' then 'abandoned'
                          when 't' then 'settled' when 'r' then 'rejected' else 'obsolete' end;
    reason := e.reason;
    ended_at := e.at;
    return next;
    return;
  end if;
  reason := s.reason;
  state := (select x.state from outlast._command x where x.id = _job_status.id);
  if state is not null then
    due_at := (select x.due_at from outlast._job_later x where x.id = _job_status.id);
    incident_at := s.incident_at;
    return next;
    return;
  end if;
  -- An entity never ends: it is done until it is marked again.
  select x.converged_at into ended_at from outlast._entity x where x.id = _job_status.id;
  if ended_at is not null then
    state := 'done';
    return next;
    return;
  end if;
  if exists (select from outlast._job_claimed x where x.id = _job_status.id) then
    state := 'running';
    attempt := attempt + 1;
    return next;
    return;
  end if;
  select * into l from outlast._job_later x where x.id = _job_status.id;
  state := 'waiting';
  due_at := l.due_at;
  incident_at := s.incident_at;
  return next;
end $$;

-- The same with what it is. For one tenant: another's id is not there.
create or replace function outlast.status(id uuid, tenant text default '')
returns table (kind text, name text, key text, state text, reason text, attempt int, accepted_at timestamptz, due_at timestamptz,
               ended_at timestamptz, incident_at timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select case j.kind when 'c' then 'command' when 'e' then 'entity' else 'job' end, j.name, j.key, s.state, s.reason, s.attempt, j.accepted_at, s.due_at, s.ended_at, s.incident_at
    from outlast._job j cross join lateral outlast._job_status(j.id) s
    where j.id = status.id and j.tenant = status.tenant;
end $$;

-- Withdraws a job in the caller's transaction: true when that commits. `withdrawn`: it will not run (any more). `requested`:
-- it is running; if this try fails, or is given back, there is no other. Else how it had ended, or `absent`.
-- from: ready, later, incident; to: ended (cancelled).
create or replace function outlast.cancel(id uuid, reason text, tenant text default '', actor text default null) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  s record;
begin
  if coalesce(cancel.reason, '') = '' then
    raise exception 'cancel %: say why', id using errcode = 'OL005';
  end if;
  if not exists (select from outlast._job j where j.id = cancel.id and j.tenant = cancel.tenant and j.kind <> 'e') then return 'absent'; end if;
  perform pg_advisory_xact_lock(outlast._job_lock(cancel.id));
  if exists (select from outlast._command m where m.id = cancel.id) then
    return outlast._cancel_command(cancel.id, cancel.reason, coalesce(cancel.actor, session_user));
  end if;
  loop
    -- Whoever is claiming it at this moment is waited for; what he has done is seen by the next statement.
    delete from outlast._job_ready x where x.id = cancel.id;
    exit when found;
    delete from outlast._job_later x where x.id = cancel.id;
    exit when found;
    select * into s from outlast._job_status(cancel.id);
    -- Its time has come between the two looks.
    continue when s.state = 'waiting' and s.incident_at is null;
    if s.state = 'running' then
      insert into outlast._job_state as x (id, cancel, cancel_by, changed_at)
      values (cancel.id, outlast._clean(cancel.reason), coalesce(cancel.actor, session_user), outlast.clock())
      on conflict (id) do update set cancel = coalesce(x.cancel, excluded.cancel), cancel_by = coalesce(x.cancel_by, excluded.cancel_by);
      return 'requested';
    elsif s.incident_at is null then
      return coalesce(s.state, 'absent');
    end if;
    exit;
  end loop;
  update outlast._job_state x set incident_at = null where x.id = cancel.id and x.incident_at is not null;
  insert into outlast._job_end (id, at, state, reason) values (cancel.id, outlast.clock(), 'x', outlast._clean(cancel.reason));
  return 'withdrawn';
end $$;

-- Cancels the job of a key, or the command.
create or replace function outlast.cancel_key(
  name text, key text, reason text, tenant text default '', actor text default null, kind text default 'job') returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _kind "char" := case cancel_key.kind when 'job' then 'j' when 'command' then 'c' end;
  _id uuid := (select k.job from outlast._job_key k
               where k.tenant = cancel_key.tenant and k.kind = _kind and k.name = cancel_key.name and k.key = cancel_key.key);
begin
  if _kind is null then
    raise exception 'cancel_key: kind % is not job or command', quote_nullable(cancel_key.kind) using errcode = 'OL005';
  end if;
  return case when _id is null then 'absent' else outlast.cancel(_id, cancel_key.reason, cancel_key.tenant, cancel_key.actor) end;
end $$;

-- Lets a job run now, with a full budget of tries: one that waits for a person, or for its next try. Answers `ready`, or how
-- it stands instead: running, done, .., absent.
-- from: incident, later; to: ready.
create or replace function outlast.retry_job(id uuid, actor text default null) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  s record;
  j outlast._job;
begin
  select * into j from outlast._job x where x.id = retry_job.id;
  if not found then return 'absent'; end if;
  perform pg_advisory_xact_lock(outlast._job_lock(retry_job.id));
  select * into s from outlast._job_status(retry_job.id);
  if s.state <> 'waiting' then return s.state; end if;
  if exists (select from outlast._job_ready x where x.id = retry_job.id) then return 'ready'; end if;
  delete from outlast._job_later x where x.id = retry_job.id;
  if not found and s.incident_at is null then
    -- It was claimed, or let go, between the look and now.
    select * into s from outlast._job_status(retry_job.id);
    return case when s.state = 'waiting' then 'ready' else s.state end;
  end if;
  update outlast._job_state x set incident_at = null, failures = 0, crashes = 0, lapses = 0, changed_at = outlast.clock()
  where x.id = retry_job.id;
  perform outlast._ready(retry_job.id);
  perform outlast._audited(case j.kind when 'e' then 'entity.retried' else 'job.retried' end, j.name || ' ' || j.id, jsonb_build_object('was', case when s.incident_at is null then 'waiting' else 'incident' end,
    'class', s.class, 'reason', s.reason, 'failures', s.attempt, 'tenant', j.tenant, 'key', j.key), retry_job.actor);
  perform outlast._woken();
  return 'ready';
end $$;

-- Gives up a job that waits for a person. Answers `abandoned`, or how it stands instead.
-- from: incident; to: ended (abandoned).
create or replace function outlast.abandon_job(id uuid, reason text, actor text default null) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  s record;
  j outlast._job;
begin
  if coalesce(abandon_job.reason, '') = '' then
    raise exception 'abandon %: say why', id using errcode = 'OL005';
  end if;
  select * into j from outlast._job x where x.id = abandon_job.id;
  if not found then return 'absent'; end if;
  perform pg_advisory_xact_lock(outlast._job_lock(abandon_job.id));
  select * into s from outlast._job_status(abandon_job.id);
  if s.incident_at is null then return s.state; end if;
  if j.kind = 'c' then return outlast.resolve(abandon_job.id, 'abandoned', abandon_job.reason, actor => abandon_job.actor); end if;
  if j.kind = 'e' then return outlast._abandon_entity(j, abandon_job.reason, abandon_job.actor); end if;
  update outlast._job_state x set incident_at = null where x.id = abandon_job.id;
  insert into outlast._job_end (id, at, state, reason) values (abandon_job.id, outlast.clock(), 'a', outlast._clean(abandon_job.reason));
  perform outlast._audited('job.abandoned', j.name || ' ' || j.id, jsonb_build_object('class', s.class, 'was', s.reason,
    'reason', outlast._clean(abandon_job.reason), 'failures', s.attempt, 'tenant', j.tenant, 'key', j.key), abandon_job.actor);
  return 'abandoned';
end $$;

-- Nobody takes work of this name until it is resumed; what runs goes on. A deploy changes nothing about it.
create or replace function outlast.pause_job(name text, reason text, actor text default null) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(pause_job.reason, '') = '' then
    raise exception 'pause %: say why', name using errcode = 'OL005';
  end if;
  insert into outlast._job_pause (name, reason, actor, since)
  values (pause_job.name, outlast._clean(pause_job.reason), coalesce(pause_job.actor, session_user), outlast.clock()) on conflict do nothing;
  if not found then return false; end if;
  perform outlast._audited('job.paused', pause_job.name, jsonb_build_object('reason', pause_job.reason), pause_job.actor);
  return true;
end $$;

create or replace function outlast.resume_job(name text, actor text default null) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from outlast._job_pause p where p.name = resume_job.name;
  if not found then return false; end if;
  perform outlast._audited('job.resumed', resume_job.name, null, resume_job.actor);
  perform nextval('outlast._event_id');          -- whoever sleeps looks
  perform outlast._woken();
  return true;
end $$;

create or replace view outlast.job as
select j.id, j.name, j.tenant, j.key, s.state, s.class, s.reason, s.attempt, j.priority, j.accepted_at, s.due_at, s.ended_at,
       s.incident_at, j.schema_version as version, j.source, j.actor, j.correlation_id, j.causation_id, j.content_type, j.payload
from outlast._job j cross join lateral outlast._job_status(j.id) s
where j.kind = 'j';
