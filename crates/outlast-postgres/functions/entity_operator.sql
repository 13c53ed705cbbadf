-- What applications look at and people decide about entities.

-- How an entity stands: waiting (also for a person: incident_at), running, converged; nothing if nothing is known of it. `unfolded`: marks that nobody
-- has taken yet, of the newest 10,000.
create or replace function outlast.entity_status(name text, entity_id text, tenant text default '')
returns table (id uuid, state text, reason text, attempt int, marked_at timestamptz, due_at timestamptz, converged_at timestamptz,
               incident_at timestamptz, tombstones int, unfolded int)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  e outlast._entity;
  s record;
  m record;
begin
  select * into e from outlast._entity x
  where x.name = entity_status.name and x.tenant = entity_status.tenant and x.entity_id = entity_status.entity_id;
  select count(*)::int as n, max(x.marked_at) as newest into m
  from (select y.* from outlast._entity_mark y order by y.id desc limit 10000) x
  where x.name = entity_status.name and x.tenant = entity_status.tenant and x.entity_id = entity_status.entity_id;
  if e.id is null and m.n = 0 then return; end if;
  id := e.id;
  unfolded := m.n;
  marked_at := coalesce(greatest(m.newest, e.marked_at), e.marked_at);
  tombstones := (select count(*) from outlast._tombstone t where t.entity = e.id);
  converged_at := case when m.n = 0 then e.converged_at end;
  state := 'waiting';
  attempt := 0;
  if e.id is not null then
    select * into s from outlast._job_status(e.id);
    if s.state <> 'done' then
      state := s.state;
      reason := s.reason;
      attempt := s.attempt;
      due_at := s.due_at;
      incident_at := s.incident_at;
    elsif m.n = 0 then
      state := 'converged';
    end if;
  end if;
  return next;
end $$;

-- Which one it is; raises if nothing is known of it.
create or replace function outlast._entity_named(name text, entity_id text, tenant text) returns uuid
language plpgsql stable
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  known uuid := (select e.id from outlast._entity e
                 where e.name = _entity_named.name and e.tenant = _entity_named.tenant and e.entity_id = _entity_named.entity_id);
begin
  if known is null then
    raise exception 'there is no entity % %', quote_nullable(left(_entity_named.name, 120)), quote_nullable(left(_entity_named.entity_id, 120))
      using errcode = 'OL012';
  end if;
  return known;
end $$;

-- Lets an entity run now, with a full budget of tries: one that waits for a person, or for its next try. Answers `ready`, or how
-- it stands instead: running, done.
-- from: incident, later; to: ready.
create or replace function outlast.retry_entity(name text, entity_id text, tenant text default '', actor text default null) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return outlast.retry_job(outlast._entity_named(retry_entity.name, retry_entity.entity_id, retry_entity.tenant), retry_entity.actor);
end $$;

-- Gives up what was wanted of an entity that waits for a person, its tombstones too. A later mark begins anew. Answers
-- `abandoned`, or how it stands instead.
-- from: incident; to: converged.
create or replace function outlast.abandon_entity(name text, entity_id text, reason text, tenant text default '', actor text default null)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return outlast.abandon_job(outlast._entity_named(abandon_entity.name, abandon_entity.entity_id, abandon_entity.tenant),
    abandon_entity.reason, abandon_entity.actor);
end $$;

-- The same, under its lock.
create or replace function outlast._abandon_entity(j outlast._job, reason text, actor text) returns text
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  e outlast._entity;
  s outlast._job_state;
  n int;
begin
  select * into strict e from outlast._entity x where x.id = (j).id for update;
  select * into s from outlast._job_state x where x.id = (j).id;
  delete from outlast._job_state x where x.id = (j).id;
  delete from outlast._tombstone t where t.entity = (j).id;
  get diagnostics n = row_count;
  update outlast._entity x set again = false, seen = '{}', converged_at = outlast.clock(), converged_by = null where x.id = (j).id;
  perform outlast._let_go((j).id);
  perform outlast._audited('entity.abandoned', (j).name || ' ' || (j).key, jsonb_build_object('id', (j).id, 'class', s.class, 'was', s.reason,
    'reason', outlast._clean(_abandon_entity.reason), 'failures', s.failures, 'tenant', (j).tenant, 'tombstones', n), _abandon_entity.actor);
  return 'abandoned';
end $$;

-- A person has looked at what late runners had made elsewhere of an entity. Answers how many refs that were.
create or replace function outlast.note_refs(name text, entity_id text, reason text, tenant text default '', actor text default null)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  known uuid := outlast._entity_named(note_refs.name, note_refs.entity_id, note_refs.tenant);
  n bigint;
begin
  if coalesce(note_refs.reason, '') = '' then
    raise exception 'note refs of % %: say what you found', note_refs.name, note_refs.entity_id using errcode = 'OL005';
  end if;
  delete from outlast._late_refs l where l.entity = known;
  get diagnostics n = row_count;
  if n > 0 then
    perform outlast._audited('entity.noted', note_refs.name || ' ' || note_refs.entity_id, jsonb_build_object('id', known,
      'reason', outlast._clean(note_refs.reason), 'tenant', note_refs.tenant, 'refs', n), note_refs.actor);
  end if;
  return n;
end $$;

-- What was kept of an entity is not true any more: somebody has taken it away there, or a restore has brought back what was before it.
-- Its next run begins without. Marks nothing, and leaves what is to be cleaned up. Answers `forgotten`, `nothing` if nothing was kept, or
-- `running`: whoever runs it goes on with what was kept.
create or replace function outlast.forget_refs(name text, entity_id text, reason text, tenant text default '', actor text default null)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  known uuid := outlast._entity_named(forget_refs.name, forget_refs.entity_id, forget_refs.tenant);
  e outlast._entity;
begin
  if coalesce(forget_refs.reason, '') = '' then
    raise exception 'forget refs of % %: say why', forget_refs.name, forget_refs.entity_id using errcode = 'OL005';
  end if;
  select * into e from outlast._entity x where x.id = known for update;
  -- In a statement after the lock, which a claim takes too.
  if exists (select from outlast._job_claimed c where c.id = known) then return 'running'; end if;
  if e.refs is null then return 'nothing'; end if;
  update outlast._entity x set refs = null, refs_codec_key = null, refs_digest = null where x.id = known;
  perform outlast._audited('entity.forgotten', forget_refs.name || ' ' || forget_refs.entity_id, jsonb_build_object('id', known,
    'reason', outlast._clean(forget_refs.reason), 'tenant', forget_refs.tenant), forget_refs.actor);
  return 'forgotten';
end $$;

-- Nobody takes entities of this name until it is resumed; what runs goes on, and marks are kept.
create or replace function outlast.pause_entity(name text, reason text, actor text default null) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return outlast.pause_job(outlast._queue('e', pause_entity.name), pause_entity.reason, pause_entity.actor);
end $$;

create or replace function outlast.resume_entity(name text, actor text default null) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return outlast.resume_job(outlast._queue('e', resume_entity.name), resume_entity.actor);
end $$;

-- Forgets entities that nobody has marked for as long as jobs are kept, and of which nothing was kept. Answers how many.
create or replace function outlast._forget_entities(n int) returns int
language plpgsql volatile
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  kept timestamptz := outlast.clock() - outlast._setting_interval('retention.job');
  old uuid[] := array(
    select e.id from outlast._entity e
    where e.refs is null and e.converged_at < kept and not exists (select from outlast._late_refs l where l.entity = e.id)
    order by e.converged_at limit n for update skip locked);
begin
  delete from outlast._job j where j.id = any (old);
  delete from outlast._entity e where e.id = any (old);
  return cardinality(old);
end $$;

-- With the marks that nobody has taken yet: one that has some is waiting, also one that nothing else is known of.
create or replace view outlast.entity as
select e.id, coalesce(e.name, m.name) as name, coalesce(e.tenant, m.tenant) as tenant, coalesce(e.entity_id, m.entity_id) as entity_id,
       case when s.state <> 'done' then s.state when m.n > 0 then 'waiting' else 'converged' end as state, s.class, s.reason,
       coalesce(s.attempt, 0) as attempt, greatest(e.marked_at, m.newest) as marked_at, coalesce(e.gone, false) as gone, s.due_at,
       case when m.n is null then e.converged_at end as converged_at, s.incident_at, coalesce(e.again, false) as again,
       coalesce(m.n, 0) as unfolded, e.refs is not null as has_refs,
       (select count(*) from outlast._tombstone t where t.entity = e.id) as tombstones,
       (select count(*) from outlast._late_refs l where l.entity = e.id) as late_refs, e.exclusive, coalesce(e.fence, 0) as fence,
       j.schema_version as version, j.actor, j.correlation_id, j.causation_id, j.content_type, j.payload
from outlast._entity e
full join (select x.name, x.tenant, x.entity_id, count(*) as n, max(x.marked_at) as newest
           from outlast._entity_mark x group by x.name, x.tenant, x.entity_id) m
  on m.name = e.name and m.tenant = e.tenant and m.entity_id = e.entity_id
left join outlast._job j on j.id = e.id
left join lateral outlast._job_status(e.id) s on e.id is not null;
