-- One try of an entity: what its claim hands out besides, what is kept and cleaned up meanwhile, and its completion.

-- Entities were taken: each gets its fence number, what was kept, and what is to be cleaned up, and from here on new marks are
-- for the next claim. At most 16 tombstones each; what is beyond comes at once after this.
create or replace function outlast._entities_taken(jobs outlast._taken_job[]) returns outlast._taken_job[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  ids uuid[] := array(select u.id from unnest(jobs) u);
  epoch bigint := (select h.confirmed << 44 from outlast._house h);
  said jsonb;
begin
  perform from outlast._entity e where e.id = any (ids) order by e.id for update;
  with dead as materialized (
    select u.id, array_agg(t.id order by t.id) as seen
    from unnest(ids) u (id)
    cross join lateral (select x.id from outlast._tombstone x where x.entity = u.id order by x.id limit 16) t
    group by u.id
  ), taken as materialized (
    update outlast._entity e
    set again = false, kept_now = false, fence = epoch | nextval('outlast._event_id'), seen = coalesce((select d.seen from dead d where d.id = e.id), '{}')
    where e.id = any (ids)
    returning e.id, e.fence, e.seen, e.refs, e.refs_codec_key
  )
  select jsonb_object_agg(e.id, jsonb_build_object('fence', e.fence,
    'refs', case when e.refs is not null then jsonb_build_object('hex', encode(e.refs, 'hex'), 'codec_key', e.refs_codec_key) end,
    'tombstones', coalesce(case when e.seen <> '{}' then (
      select jsonb_agg(jsonb_build_object('id', d.id, 'hex', encode(d.refs, 'hex'), 'codec_key', d.codec_key) order by d.id)
      from (select distinct on (t.digest) t.* from outlast._tombstone t where t.id = any (e.seen) order by t.digest, t.id) d) end, '[]')))
  into said from taken e;
  for i in 1..cardinality(jobs) loop
    jobs[i].entity := said -> jobs[i].id::text;
  end loop;
  return jobs;
end $$;

-- The completion of entities of one claim, whose rows in it were just deleted. Exactly the tombstones go that the claim has handed
-- out. What was marked since is a next claim, at once.
-- from: claimed; to: converged, ready.
create or replace function outlast._converged(token uuid, ids uuid[]) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  e outlast._entity;
  more boolean;
  at timestamptz := outlast.clock();
begin
  for e in select x.* from outlast._entity x where x.id = any (ids) order by x.tenant, x.exclusive, x.id for update loop
    perform outlast._bury(e, e.seen);
    -- In a statement after the lock: whoever folds marks into it has it, too.
    more := e.again or exists (select from outlast._tombstone t where t.entity = e.id);
    update outlast._entity x
    set again = false, seen = '{}', converged_by = _converged.token, converged_at = case when not more then at end
    where x.id = e.id;
    delete from outlast._job_state s where s.id = e.id;
    perform outlast._let_go(e.id);
    if more then
      if e.exclusive is not null then
        insert into outlast._exclusive (tenant, key, seq, id) values (e.tenant, e.exclusive, nextval('outlast._event_id'), e.id);
      end if;
      perform outlast._ready(e.id);
    end if;
  end loop;
  perform nextval('outlast._event_id');          -- whoever could not lock it has left its marks
  perform outlast._woken();
end $$;

-- These tombstones of an entity in work are done, and all with the same refs that its claim has handed out. What was kept goes with
-- them, also of something that has come back, or the next try would go on with what is gone elsewhere; unless this claim has kept it:
-- so a reconciler says that it goes on with the refs of a deletion.
create or replace function outlast._bury(e outlast._entity, tombstones bigint[]) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  digests bytea[];
begin
  if cardinality(tombstones) = 0 then return; end if;
  digests := array(select t.digest from outlast._tombstone t where t.id = any (tombstones) and t.id = any ((e).seen) and t.entity = (e).id);
  delete from outlast._tombstone t where t.id = any ((e).seen) and t.entity = (e).id and t.digest = any (digests);
  if not (e).kept_now and (e).refs_digest = any (digests) then
    update outlast._entity x set refs = null, refs_codec_key = null, refs_digest = null where x.id = (e).id;
  end if;
end $$;

-- Tombstones are cleaned up, whatever becomes of the rest of the try.
create or replace function outlast._cleaned(token uuid, id uuid, tombstones bigint[]) returns void
language plpgsql volatile
set lock_timeout = '8s'
as $$
#variable_conflict use_column
declare
  e outlast._entity;
begin
  perform outlast._prove(_cleaned.token);
  if not exists (select from outlast._job_claimed c where c.id = _cleaned.id and c.token = _cleaned.token) then
    raise exception 'entity % is not in the claim %', _cleaned.id, _cleaned.token using errcode = 'OL003';
  end if;
  select * into strict e from outlast._entity x where x.id = _cleaned.id for update;
  perform outlast._bury(e, coalesce(_cleaned.tombstones, '{}'));
end $$;

-- Keeps what the provider calls an entity, for every try after this one: durable when it has committed, before anything else of
-- the try is. `late`: the lease is lost, or the entity is not in this claim any more. Then nothing is kept, and the refs are put
-- before a person: what was just made elsewhere, nobody else knows of.
create or replace function outlast._keep(token uuid, id uuid, refs bytea, codec_key text default null, digest bytea default null) returns text
language plpgsql volatile
set lock_timeout = '8s'
as $$
#variable_conflict use_column
declare
  mine boolean := false;
  known outlast._entity;
  _digest bytea;
begin
  perform outlast._check_refs(_keep.id::text, _keep.refs, _keep.codec_key, _keep.digest);
  _digest := outlast._refs_digest(_keep.refs, _keep.codec_key, _keep.digest);
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  begin
    perform outlast._prove(_keep.token);
    mine := exists (select from outlast._job_claimed c where c.id = _keep.id and c.token = _keep.token);
  exception when sqlstate 'OL001' then null;
  end;
  if mine then
    update outlast._entity e set refs = _keep.refs, refs_codec_key = _keep.codec_key, refs_digest = _digest, kept_now = true where e.id = _keep.id;
    if found then return 'kept'; end if;
  end if;
  select * into known from outlast._entity e where e.id = _keep.id;
  if not found then
    raise exception 'keep: nothing is known of entity %', _keep.id using errcode = 'OL003';
  end if;
  if known.refs_digest is distinct from _digest and _keep.refs is not null then
    insert into outlast._late_refs (entity, at, token, refs, codec_key)
    values (_keep.id, outlast.clock(), _keep.token, _keep.refs, _keep.codec_key);
  end if;
  return 'late';
end $$;

-- The same for a runner in another language. In a transaction of its own, committed before anything else is done.
create or replace function outlast.keep(token uuid, id uuid, refs text) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return outlast._keep(keep.token, keep.id, convert_to(keep.refs, 'UTF8'));
end $$;

-- What the claim of a runner in another language hands out besides: a row for each tombstone, one in any case.
create or replace function outlast.entity_try(token uuid, id uuid)
returns table (fence bigint, refs text, tombstone bigint, deleted text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform outlast._prove(entity_try.token);
  return query
    select e.fence, convert_from(e.refs, 'UTF8'), t.id, convert_from(t.refs, 'UTF8')
    from outlast._job_claimed c
    join outlast._entity e on e.id = c.id
    left join lateral (
      select distinct on (x.digest) x.* from outlast._tombstone x where x.id = any (e.seen) order by x.digest, x.id) t on true
    where c.id = entity_try.id and c.token = entity_try.token
    order by t.id;
  if not found then
    raise exception 'entity % is not in the claim %', entity_try.id, entity_try.token using errcode = 'OL003';
  end if;
end $$;

-- Whether the transaction `xid`, whose COMMIT was not answered, has completed this claim of an entity; null while it is open.
create or replace function outlast._entity_landed(token uuid, id uuid, xid xid8) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  if _entity_landed.xid < pg_current_xact_id() and not pg_visible_in_snapshot(_entity_landed.xid, pg_current_snapshot()) then
    return null;
  end if;
  return exists (select from outlast._entity e where e.id = _entity_landed.id and e.converged_by = _entity_landed.token);
end $$;
