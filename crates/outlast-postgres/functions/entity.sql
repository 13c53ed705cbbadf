-- The doors for entities, and what becomes of marks. One statement of the caller's own transaction; durable when that commits,
-- gone when it does not.

-- Marks an entity as changed: what must look the same somewhere else does not any more. When this has committed its reconciler
-- runs, at least once after it, and reads how it is then: many marks are one run. Insert-only, so nobody waits for anybody here, in no isolation
-- level, and it may be called for thousands of rows in one statement (`select outlast.changed('crm', id) from customers`).
-- `payload` is what the reconciler gets to know which one is meant; without it what was given before, else {"id": entity_id}.
create or replace function outlast.changed(
  name text, entity_id text, tenant text default '', exclusive text default null, payload text default null, version int default 1,
  actor text default null, correlation_id uuid default null, causation_id uuid default null, traceparent text default null,
  bytes bytea default null, content_type text default 'application/json', codec_key text default null)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform outlast._mark_entity(changed.name, changed.entity_id, changed.tenant, changed.exclusive, changed.payload, changed.version,
    changed.actor, changed.correlation_id, changed.causation_id, changed.traceparent, changed.bytes, changed.content_type, changed.codec_key,
    null, null, null);
end $$;

-- Marks an entity as gone, before its row or a cascade takes away what is needed to clean up: that is in `refs`. Each refs that
-- differ are a duty of their own, which no later `changed` takes away; handed out until the reconciler has returned for them.
create or replace function outlast.deleted(
  name text, entity_id text, refs text, tenant text default '', exclusive text default null, payload text default null,
  version int default 1, actor text default null, correlation_id uuid default null, causation_id uuid default null,
  traceparent text default null, bytes bytea default null, content_type text default 'application/json', codec_key text default null,
  refs_bytes bytea default null, refs_codec_key text default null, refs_digest bytea default null)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _refs bytea := coalesce(deleted.refs_bytes, convert_to(deleted.refs, 'UTF8'));
begin
  if (deleted.refs is null) = (deleted.refs_bytes is null) then
    raise exception 'deleted %: give refs, what is needed to clean up', quote_nullable(left(deleted.name, 120))
      using errcode = 'OL005', hint = 'where nothing but what was kept is needed, call outlast.changed';
  end if;
  perform outlast._check_refs(deleted.name, _refs, deleted.refs_codec_key, deleted.refs_digest);
  perform outlast._mark_entity(deleted.name, deleted.entity_id, deleted.tenant, deleted.exclusive, deleted.payload, deleted.version,
    deleted.actor, deleted.correlation_id, deleted.causation_id, deleted.traceparent, deleted.bytes, deleted.content_type, deleted.codec_key,
    _refs, deleted.refs_codec_key, outlast._refs_digest(_refs, deleted.refs_codec_key, deleted.refs_digest));
end $$;

-- The transaction id is taken before the id is drawn: see _fold_marks.
create or replace function outlast._mark_entity(
  name text, entity_id text, tenant text, exclusive text, payload text, version int, actor text, correlation_id uuid,
  causation_id uuid, traceparent text, bytes bytea, content_type text, codec_key text, refs bytea, refs_codec_key text, refs_digest bytea)
returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  _bytes bytea := coalesce(_mark_entity.bytes, convert_to(_mark_entity.payload, 'UTF8'));
begin
  if pg_is_in_recovery() then
    raise exception 'mark %: this server is a standby', _mark_entity.name using errcode = 'OL009', hint = 'connect to the primary';
  end if;
  if _mark_entity.name is null or length(_mark_entity.name) not between 1 and 100
    or translate(_mark_entity.name, 'abcdefghijklmnopqrstuvwxyz0123456789._/-', '') <> '' then
    raise exception 'entity name % is not 1 to 100 of a-z 0-9 . _ / -', quote_nullable(left(_mark_entity.name, 120)) using errcode = 'OL005';
  end if;
  if coalesce(_mark_entity.entity_id, '') = '' then
    raise exception 'mark %: no id, which says which entity is meant', _mark_entity.name using errcode = 'OL005';
  end if;
  perform outlast._check_envelope(_mark_entity.name, _mark_entity.tenant, _mark_entity.entity_id, null, _mark_entity.version, _mark_entity.content_type);
  if _mark_entity.exclusive = '' or length(_mark_entity.exclusive) > 500 then
    raise exception 'mark %: the key of exclusion is empty or longer than 500 characters', _mark_entity.name using errcode = 'OL005';
  end if;
  if coalesce(_mark_entity.actor, _mark_entity.traceparent, _mark_entity.codec_key) is not null then
    perform outlast._check_about(_mark_entity.name, null, null, _mark_entity.actor, _mark_entity.traceparent, _mark_entity.codec_key, null);
  end if;
  if _bytes is not null then
    if _mark_entity.payload is not null and _mark_entity.bytes is not null then
      raise exception 'mark %: give either payload or bytes', _mark_entity.name using errcode = 'OL005';
    end if;
    if octet_length(_bytes) > 65536 then
      raise exception 'mark %: payload of % bytes is over the limit of 65536', _mark_entity.name, octet_length(_bytes)
        using errcode = 'OL006', hint = 'it says which entity is meant: its reconciler reads the rest';
    end if;
    perform outlast._check_payload(_mark_entity.name,
      case when _mark_entity.codec_key is null then _mark_entity.content_type else 'application/octet-stream' end, _bytes);
  end if;
  perform pg_current_xact_id();
  insert into outlast._entity_mark (id, name, tenant, entity_id, exclusive, schema_version, marked_at, correlation_id, causation_id,
    actor, traceparent, content_type, codec_key, payload, refs, refs_codec_key, refs_digest)
  values (nextval('outlast._event_id'), _mark_entity.name, _mark_entity.tenant, _mark_entity.entity_id, _mark_entity.exclusive,
    _mark_entity.version, outlast.clock(), _mark_entity.correlation_id, _mark_entity.causation_id, _mark_entity.actor,
    outlast._traceparent(_mark_entity.traceparent), _mark_entity.content_type, _mark_entity.codec_key, _bytes,
    _mark_entity.refs, _mark_entity.refs_codec_key, _mark_entity.refs_digest);
  perform outlast._woken();
end $$;

create or replace function outlast._check_refs(name text, refs bytea, codec_key text, digest bytea) returns void
language plpgsql immutable parallel safe
as $$
begin
  if octet_length(refs) > 16384 then
    raise exception 'entity %: refs of % bytes are over the limit of 16384', name, octet_length(refs)
      using errcode = 'OL006', hint = 'refs are what others call it, not what is there';
  end if;
  if length(codec_key) > 500 or octet_length(digest) not between 16 and 64 then
    raise exception 'entity %: a codec key longer than 500 characters, or a digest that is not 16 to 64 bytes', name using errcode = 'OL005';
  end if;
  if refs is not null and codec_key is null then
    perform outlast._check_payload(name, 'application/json', refs);
  end if;
end $$;

-- What tells refs from others: of JSON its content, not its spelling.
create or replace function outlast._refs_digest(refs bytea, codec_key text, digest bytea) returns bytea
language sql immutable
as $$
  select case when refs is null then null when digest is not null then digest
              when codec_key is not null then sha256(refs) else outlast._job_digest('', 'application/json', refs) end
$$;

-- Takes marks, oldest first, and makes their entities ready, each once; one at a time. Whoever cannot lock an entity leaves its
-- marks: whoever has it is completing it, and rings when he is done. Beyond `n` the newest are taken too: a flood of one tenant
-- keeps nobody waiting. Answers how many marks.
--
-- Invariant: all marks that this deletes have committed before this does, and a claim of their entity commits no sooner. So
-- whoever reads the business after his claim sees what they tell. What commits later is not deleted here: nothing is deleted by a range of ids.
-- from: converged; to: ready. In work it will be ready again; ready, later or with a person it stays where it is.
create or replace function outlast._fold_marks(n int) returns int
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  moment timestamptz := outlast.clock();
  look outlast._entity_look;
  below bigint;
  ended boolean;                                 -- who drew ids up to look.next
  early boolean := pg_current_xact_id_if_assigned() is null;   -- our own id will be taken after `top` was read
  top bigint := coalesce(pg_sequence_last_value('outlast._event_id'), 0);
  marks tid[];
  last bigint;
  found_n int;
  folded int;
begin
  if not outlast._has_marks() or not pg_try_advisory_xact_lock(outlast._lock_room(7319)) then return 0; end if;
  select * into look from outlast._entity_look x order by x.xid desc limit 1;
  below := coalesce(look.below, 0);
  -- Before the marks are looked at: whatever has ended by now is seen by that look.
  ended := coalesce(pg_snapshot_xmin(pg_current_snapshot()) >= look.xid, false);
  select array_agg(x.ctid), max(x.id), count(*) into marks, last, found_n
  from (select m.ctid, m.id from outlast._entity_mark m where m.id > below order by m.id limit n) x;
  if found_n = 0 then return 0; end if;
  if found_n >= n then
    marks := marks || array(
      select m.ctid from outlast._entity_mark m where m.id > last order by m.id desc limit greatest(n / 4, 1));
  end if;

  -- Those that nobody knows. Only here are any made, one at a time.
  with named as materialized (
    select distinct m.name, m.tenant, m.entity_id from outlast._entity_mark m where m.ctid = any (marks)
  ), made as (
    insert into outlast._entity (id, name, tenant, entity_id, marked_at, converged_at)
    select outlast._v7(moment), n.name, n.tenant, n.entity_id, moment, moment from named n
    where not exists (select from outlast._entity e where e.name = n.name and e.tenant = n.tenant and e.entity_id = n.entity_id)
    returning id, name, tenant, entity_id
  )
  insert into outlast._job (id, kind, name, tenant, key, account, priority, schema_version, accepted_at, content_type, payload)
  select x.id, 'e', x.name, x.tenant, x.entity_id, '', 0, 1, moment, 'application/json',
         convert_to(json_build_object('id', x.entity_id)::text, 'UTF8')
  from made x;

  with named as materialized (
    select m.name, m.tenant, m.entity_id, array_agg(m.ctid) as marks from outlast._entity_mark m
    where m.ctid = any (marks) group by m.name, m.tenant, m.entity_id
  ), mine as materialized (
    -- Once for each entity, not for each mark: of a hot one there may be dead versions.
    select n.marks, e.id as entity, e.converged_at is not null as idle, e.seen
    from named n
    join outlast._entity e on e.name = n.name and e.tenant = n.tenant and e.entity_id = n.entity_id
    for update of e skip locked
  ), gone as materialized (
    delete from outlast._entity_mark m using (select x.*, u.mark from mine x cross join lateral unnest(x.marks) u (mark)) x
    where m.ctid = x.mark
    returning x.entity, x.idle, x.seen, m.*
  ), newest as materialized (
    select distinct on (g.entity) g.*, min(g.id) over (partition by g.entity) as first, min(g.marked_at) over (partition by g.entity) as since
    from gone g order by g.entity, g.id desc
  ), said as materialized (
    select distinct on (g.entity) g.entity, g.schema_version, g.content_type, g.codec_key, g.payload
    from gone g where g.payload is not null order by g.entity, g.schema_version desc, g.id desc
  ), buried as (
    -- The same refs twice are one duty, unless the first is in somebody's hands.
    insert into outlast._tombstone (id, entity, digest, refs, codec_key, actor, deleted_at)
    select nextval('outlast._event_id'), d.entity, d.refs_digest, d.refs, d.refs_codec_key, d.actor, d.marked_at
    from (select distinct on (g.entity, g.refs_digest) g.* from gone g
          where g.refs is not null and not exists (
            select from outlast._tombstone t where t.entity = g.entity and t.digest = g.refs_digest and t.id <> all (g.seen))
          order by g.entity, g.refs_digest, g.id) d
    order by d.id
  ), told as (
    update outlast._entity e
    set converged_at = null, again = not x.idle, exclusive = x.exclusive, marked_at = x.marked_at, gone = x.refs is not null
    from newest x where e.id = x.entity
  ), written as (
    update outlast._job j
    set accepted_at = case when x.idle then x.since else j.accepted_at end, correlation_id = x.correlation_id, causation_id = x.causation_id,
        actor = x.actor, traceparent = x.traceparent,
        schema_version = coalesce(s.schema_version, j.schema_version), content_type = coalesce(s.content_type, j.content_type),
        codec_key = case when s.payload is null then j.codec_key else s.codec_key end, payload = coalesce(s.payload, j.payload)
    from newest x
    left join said s on s.entity = x.entity and s.schema_version >= (select y.schema_version from outlast._job y where y.id = x.entity)
    where j.id = x.entity
  ), queued as (
    insert into outlast._exclusive (tenant, key, seq, id)
    select o.tenant, o.exclusive, nextval('outlast._event_id'), o.entity
    from (select x.* from newest x where x.idle and x.exclusive is not null order by x.first) o
  ), ready as (
    insert into outlast._job_ready (seq, priority, id, name, account, tenant)
    select nextval('outlast._event_id'), 0, o.entity, outlast._queue('e', o.name), '', o.tenant
    from (select x.* from newest x where x.idle order by x.first) o
  )
  select count(*) into folded from gone;

  if found_n >= n then
    perform nextval('outlast._event_id');        -- there are more: whoever looks comes again
  elsif folded = found_n and early and (look.at < moment - interval '1 second') is not false then
    -- All above `below` that can be seen was taken. Whoever drew an id up to `top` had a transaction id before that, so below ours.
    insert into outlast._entity_look (xid, below, next, at)
    values (pg_current_xact_id(), case when ended then look.next else below end, top, moment);
    delete from outlast._entity_look x where x.xid = look.xid;
  end if;
  return folded;
end $$;

-- Whether there are marks that nobody has taken.
create or replace function outlast._has_marks() returns boolean
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  below bigint := coalesce((select l.below from outlast._entity_look l order by l.xid desc limit 1), 0);
begin
  return exists (select from outlast._entity_mark m where m.id > below);
end $$;
