-- What people decide about commands.

-- What a person has found out about a command that waits for one: `settled` (with the provider's reference), `rejected` (it has
-- refused it), `not_applied` (it had no effect and may be sent again), `abandoned` (nobody will ever know). Of one that had ended
-- and was told another end: `noted`. Answers the state after it; a command that waits for nobody is left alone and its state
-- answered.
-- from: incident of waiting, unknown, pending; to: settled, rejected, waiting, abandoned.
create or replace function outlast.resolve(
  id uuid, as_state text, reason text, reference text default null, answer text default null, actor text default null) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  j outlast._job;
  m outlast._command;
  s outlast._job_state;
  _answer bytea := convert_to(resolve.answer, 'UTF8');
begin
  if as_state is null or as_state not in ('settled', 'rejected', 'not_applied', 'abandoned', 'noted') then
    raise exception 'resolve %: % is not settled, rejected, not_applied, abandoned or noted', id, quote_nullable(as_state) using errcode = 'OL005';
  end if;
  if coalesce(resolve.reason, '') = '' then
    raise exception 'resolve %: say how you know', id using errcode = 'OL005';
  end if;
  if as_state = 'settled' and coalesce(resolve.reference, '') = '' then
    raise exception 'resolve %: settled needs the reference by which the provider knows it', id using errcode = 'OL005';
  end if;
  perform outlast._check_answer(id::text, _answer);
  select * into j from outlast._job x where x.id = resolve.id and x.kind = 'c';
  if not found then
    raise exception 'there is no command %', id using errcode = 'OL012';
  end if;
  perform pg_advisory_xact_lock(outlast._job_lock(resolve.id));
  select * into strict m from outlast._command x where x.id = resolve.id for update;
  if as_state = 'noted' then
    delete from outlast._contradiction c where c.command = resolve.id;
    if not found then return m.state; end if;
  else
    select * into s from outlast._job_state x where x.id = resolve.id and x.incident_at is not null;
    if not found then return m.state; end if;
    if as_state = 'not_applied' and m.state = 'pending' then
      raise exception 'command % is pending: its provider took it. Resolve it as settled, rejected or abandoned', id using errcode = 'OL005';
    end if;
  end if;
  perform outlast._witness(m, 'decided', as_state, true, resolve.reference, resolve.reason, _answer, coalesce(resolve.actor, session_user));
  perform outlast._audited('command.resolved', j.name || ' ' || j.id, jsonb_build_object('was', m.state, 'as', as_state,
    'reason', outlast._clean(resolve.reason), 'reference', resolve.reference, 'class', s.class, 'because', s.reason, 'tenant', j.tenant, 'key', j.key), resolve.actor);
  case as_state
    when 'settled' then perform outlast._conclude(id, 'settled', _answer, resolve.reference, resolve.reason);
    when 'rejected' then perform outlast._conclude(id, 'rejected', null, resolve.reference, resolve.reason);
    when 'abandoned' then perform outlast._conclude(id, 'abandoned', null, resolve.reference, resolve.reason);
    when 'not_applied' then
      update outlast._job_state x set incident_at = null, failures = 0, crashes = 0, lapses = 0, changed_at = outlast.clock() where x.id = resolve.id;
      if m.state = 'unknown' then
        perform outlast._not_applied(m);
      else
        perform outlast._ready(id);
      end if;
    else null;
  end case;
  perform outlast._woken();
  return (select x.state from outlast._command x where x.id = resolve.id);
end $$;

-- Under its lock. Nothing of it has left: it is withdrawn. Else that is on record and comes to pass if it turns out to have had no
-- effect.
-- from: waiting; to: cancelled.
create or replace function outlast._cancel_command(id uuid, reason text, actor text) returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  m outlast._command;
begin
  select * into strict m from outlast._command x where x.id = _cancel_command.id for update;
  if m.state = 'waiting' then
    perform outlast._witness(m, 'decided', 'cancelled', true, null, _cancel_command.reason, null, _cancel_command.actor);
    perform outlast._conclude(id, 'cancelled', null, null, _cancel_command.reason);
    return 'withdrawn';
  elsif m.state in ('running', 'pending', 'unknown') then
    insert into outlast._job_state as x (id, cancel, cancel_by, changed_at)
    values (_cancel_command.id, outlast._clean(_cancel_command.reason), _cancel_command.actor, outlast.clock())
    on conflict (id) do update set cancel = coalesce(x.cancel, excluded.cancel), cancel_by = coalesce(x.cancel_by, excluded.cancel_by);
    return 'requested';
  end if;
  return m.state;
end $$;

-- Does without what was told of a command that never came: of this key, or, without one, all of this name and tenant for which it
-- is more than seven days ago. Answers how much that was.
create or replace function outlast.discard_settlement(name text, key text, reason text, tenant text default '', actor text default null) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  week_ago timestamptz := outlast.clock() - interval '7 days';
  gone int;
begin
  if coalesce(discard_settlement.name, '') = '' or discard_settlement.tenant is null or coalesce(discard_settlement.reason, '') = '' then
    raise exception 'discard settlement %: name the command and its tenant, and say why', quote_nullable(discard_settlement.name) using errcode = 'OL005';
  end if;
  delete from outlast._settlement x where x.ctid = any (array(
    select s.ctid from outlast._settlement s
    where s.tenant = discard_settlement.tenant and s.name = discard_settlement.name
      and (s.key = discard_settlement.key or discard_settlement.key is null and s.at < week_ago)
    order by s.at limit 10000));
  get diagnostics gone = row_count;
  if gone > 0 then
    perform outlast._audited('settlement.discarded', discard_settlement.name, jsonb_build_object('key', discard_settlement.key,
      'tenant', discard_settlement.tenant, 'count', gone, 'reason', outlast._clean(discard_settlement.reason)), discard_settlement.actor);
  end if;
  return gone;
end $$;

create or replace view outlast.command as
select j.id, j.name, j.tenant, j.key, m.state, m.version as moves, j.account, m.provider_key, m.sent, m.first_sent_at, m.reference, m.answer,
       s.class, s.reason, s.attempt, s.due_at, s.ended_at, s.incident_at, m.unknown_at, m.pending_until, m.supersedes, j.priority,
       j.accepted_at, j.schema_version as version, j.source, j.actor, j.correlation_id, j.causation_id, j.payload
from outlast._job j
join outlast._command m on m.id = j.id
cross join lateral outlast._job_status(j.id) s;

-- What happened to each command, in order.
create or replace view outlast.evidence as
select e.command, e.at, e.what, e.result, e.state, e.moved, e.reference, e.reason, encode(e.digest, 'hex') as digest, e.actor, e.id
from outlast._evidence e;
