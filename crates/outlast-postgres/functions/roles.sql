-- Who may do what: four roles of the schema, and the one list of functions that anybody but the owner may call.
-- Always the last file: functions are replaced and added before it, and rights follow from what is there then.

-- A function for others is a line here: its name, who may call it, and whether it works with the owner's rights (then it
-- must be safe for any argument, has a fixed search path, and builds no statement). `owner`: nobody else.
-- emitter: a transaction of an application that writes intents. engine: a worker, its handlers' logins, a runner in another
-- language. reader: whoever looks. What is in no line is for the owner alone.
create or replace function outlast._doors() returns table (name text, callers text[], as_owner boolean)
language sql immutable parallel safe
as $$
  values
    ('emit',              '{emitter,engine}'::text[], true),
    ('emit_all',          '{emitter,engine}', true),
    ('enqueue',           '{emitter,engine}', true),
    ('command',           '{emitter,engine}', true),
    ('settle',            '{emitter,engine}', true),
    ('cancel',            '{emitter,engine}', true),
    ('changed',           '{emitter,engine}', true),
    ('deleted',           '{emitter,engine}', true),
    ('entity_status',     '{emitter,engine,reader}', true),
    ('cancel_key',        '{emitter,engine}', true),
    ('status',            '{emitter,engine,reader}', true),
    ('_emit',             '{emitter,engine}', true),
    ('_emitted',          '{emitter,engine}', true),
    ('clock',             '{emitter,engine,reader}', false),       -- inlined into what asks it, also into the views
    ('claim',             '{engine}', true),
    ('complete',          '{engine}', true),
    ('fail',              '{engine}', true),
    ('fence',             '{engine}', true),
    ('exclude',           '{engine}', true),
    ('sent',              '{engine}', true),
    ('record',            '{engine}', true),
    ('renew',             '{engine}', true),
    ('release',           '{engine}', true),
    ('keep',              '{engine}', true),
    ('entity_try',        '{engine}', true),
    ('register',          '{engine}', true),
    ('abandon_entity',    '{owner}',  true),
    ('abandon_job',       '{owner}',  true),
    ('discard',           '{owner}',  true),
    ('discard_settlement', '{owner}', true),
    ('pause',             '{owner}',  true),
    ('forget_refs',       '{owner}',  true),
    ('limit_account',     '{owner}',  true),
    ('pause_account',     '{owner}',  true),
    ('pause_entity',      '{owner}',  true),
    ('pause_job',         '{owner}',  true),
    ('note_refs',         '{owner}',  true),
    ('resolve',           '{owner}',  true),
    ('resume_account',    '{owner}',  true),
    ('resume',            '{owner}',  true),
    ('resume_entity',     '{owner}',  true),
    ('resume_job',        '{owner}',  true),
    ('retry',             '{owner}',  true),
    ('retry_entity',      '{owner}',  true),
    ('retry_job',         '{owner}',  true),
    ('skip',              '{owner}',  true),
    -- What the views call: with the rights of whoever looks, unless it reads what he may not.
    ('_inbox_slot',       '{engine,reader}', false),
    ('_job_status',       '{engine,reader}', true),
    ('_places',           '{engine,reader}', true),
    ('_provider_key',     '{engine,reader}', false),
    ('_setting_interval', '{engine,reader}', true),
    ('_signature',        '{engine,reader}', false),
    ('cancel_rewind',     '{owner}',  true),
    ('rewind',            '{owner}',  true),
    ('rewind_size',       '{reader}', true),
    ('rename_consumer',   '{owner}',  true),
    ('retire_consumer',   '{owner}',  true),
    ('remove_type',       '{owner}',  true),
    ('change_lanes',      '{owner}',  true),
    ('_whereabouts',      '{engine,reader}', true),                -- in the view of consumers
    -- What the statements of a worker call.
    ('_accepted',         '{engine}', true),
    ('_arrive',           '{engine}', true),
    ('_await',            '{engine}', true),
    ('_check_settings',   '{engine}', true),
    ('_claim',            '{engine}', true),
    ('_claim_delivered',  '{engine}', true),
    ('_claim_jobs',       '{engine}', true),
    ('_claim_parked',     '{engine}', true),
    ('_cleaned',          '{engine}', true),
    ('_complete_and_finish_jobs', '{engine}', true),
    ('_complete_jobs',    '{engine}', true),
    ('_due',              '{engine}', true),
    ('_due_jobs',         '{engine}', true),
    ('_elect',            '{engine}', true),
    ('_empty_now',        '{engine}', true),
    ('_empty_take',       '{engine}', true),
    ('_entity_landed',    '{engine}', true),
    ('_fail',             '{engine}', true),
    ('_fail_delivered',   '{engine}', true),
    ('_finish',           '{engine}', true),
    ('_finish_jobs',      '{engine}', true),
    ('_fold',             '{engine}', true),
    ('_forget',           '{engine}', true),
    ('_forget_jobs',      '{engine}', true),
    ('_forget_keys',      '{engine}', true),
    ('_move_out',         '{engine}', true),
    ('_hand_back',        '{engine}', true),
    ('_job_landed',       '{engine}', true),
    ('_judge',            '{engine}', true),
    ('_keep',             '{engine}', true),
    ('_keep_unreadable',  '{engine}', true),
    ('_landed',           '{engine}', true),
    ('_let_go_jobs',      '{engine}', true),
    ('_outage',           '{engine}', true),
    -- Outboxes of others: what asks a table of theirs does so with the rights of the login.
    ('_outboxes',         '{engine}', true),
    ('_outbox_asked',     '{engine,reader}', false),
    ('_outbox_backlog',   '{engine,reader}', false),
    ('_outbox_claim',     '{engine}', false),
    ('_outbox_done',      '{engine}', false),
    ('_outbox_end',       '{engine}', true),
    ('_outbox_event_id',  '{engine}', false),
    ('_outbox_failed',    '{engine}', false),
    ('_outbox_forget',    '{engine}', true),
    ('_outbox_gone',      '{engine}', true),
    ('_outbox_named',     '{engine,reader}', true),
    ('_outbox_oid',       '{engine,reader}', false),
    ('_outbox_open',      '{engine}', true),
    ('_outbox_owned',     '{engine}', true),
    ('_outbox_park',      '{engine}', true),
    ('_outbox_problems',  '{engine,reader}', false),
    ('_outbox_read',      '{engine}', false),
    ('_outbox_set_aside', '{engine}', false),
    ('_outbox_take',      '{engine}', true),
    ('_outbox_topic',     '{engine,reader}', false),
    ('_outbox_topics',    '{engine,reader}', false),
    ('_outbox_type_of',   '{engine,reader}', false),
    ('_outbox_unfit',     '{engine}', false),
    ('_outage_over',      '{engine}', true),
    ('_promote',          '{engine}', true),
    ('_reclaim',          '{engine}', true),
    ('_reclaim_jobs',     '{engine}', true),
    ('_register',         '{engine}', true),
    ('_register_delivered', '{engine}', true),
    ('_renew_all',        '{engine}', true),
    ('_routes',           '{engine}', true),
    ('_record',           '{engine}', true),
    ('_route_limits',     '{engine}', true),
    ('_resign',           '{engine}', true),
    ('_sent',             '{engine}', true),
    ('_rewind_claim',     '{engine}', true),
    ('_rewind_moved',     '{engine}', true),
    ('_rewind_page',      '{engine}', true),
    ('_rewound',          '{engine}', true),
    ('_seal',             '{engine}', true),
    ('_seal_and_finish',  '{engine}', true),
    ('_seal_last',        '{engine}', true),
    ('_setting',          '{engine}', true),
    ('_settled',          '{engine}', true),
    ('_unfit',            '{engine,reader}', true),                -- outlast adopt check
    ('_start',            '{engine}', true),
    ('_start_jobs',       '{engine}', true),
    ('_visible_above',    '{engine}', true),
    ('_wait_delivered',   '{engine}', true),
    ('_wake_lock',        '{engine}', false),
    ('_wait_for_version', '{engine}', true),
    ('_where',            '{engine}', true)
$$;

-- What is not as it should be and needs more rights than the caller has: statements for an administrator, in order.
create or replace function outlast._missing_rights() returns setof text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  role text;
  ours name := current_user;
  is_owner boolean;
begin
  foreach role in array array['outlast_owner', 'outlast_emitter', 'outlast_engine', 'outlast_reader'] loop
    if not exists (select from pg_roles r where r.rolname = role) then
      return next format('create role %I nologin;', role);
    end if;
  end loop;
  if not exists (select from pg_roles r where r.rolname = 'outlast_owner') then
    is_owner := false;
  else
    is_owner := pg_has_role(ours, 'outlast_owner', 'usage');
  end if;
  if not is_owner then
    return next format('grant outlast_owner to %I;', ours);
  end if;
  if exists (select from pg_namespace n join pg_roles r on r.oid = n.nspowner
             where n.nspname = 'outlast' and r.rolname <> 'outlast_owner')
    and not has_database_privilege(ours, current_database(), 'create') then
    return next 'alter schema outlast owner to outlast_owner;';
  end if;
end $$;

-- Makes it so, as far as the caller may, and answers what is left for an administrator. Does only what is not so yet:
-- run at each migrate, it changes nothing then.
create or replace function outlast._secure() returns setof text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  role text;
  ours name := current_user;
  own oid;
  s oid := (select n.oid from pg_namespace n where n.nspname = 'outlast');
  x record;
begin
  foreach role in array array['outlast_owner', 'outlast_emitter', 'outlast_engine', 'outlast_reader'] loop
    if not exists (select from pg_roles r where r.rolname = role) then
      begin
        execute format('create role %I nologin', role);
      exception
        -- Roles are the server's: another database may be making the same one.
        when duplicate_object or unique_violation then null;
        when insufficient_privilege then null;
      end;
    end if;
  end loop;

  -- Maintenance looks for old snapshots; without this it sees those of no other login, and only its waiting time protects
  -- a dump from an emptied leaf.
  select r.oid into own from pg_roles r where r.rolname = 'outlast_owner';
  if own is not null and not pg_has_role(own, 'pg_read_all_stats', 'usage') then
    begin
      grant pg_read_all_stats to outlast_owner;
    exception when insufficient_privilege then null;
    end;
  end if;

  -- Functions that work with their owner's rights must not do so with those of whoever has migrated.
  select r.oid into own from pg_roles r where r.rolname = 'outlast_owner';
  if own is not null and not pg_has_role(ours, own, 'usage') then
    begin
      execute format('grant outlast_owner to %I', ours);
    exception when insufficient_privilege then null;
    end;
  end if;
  if own is not null and pg_has_role(ours, own, 'usage') then
    if exists (select from pg_namespace n where n.oid = s and n.nspowner <> own) then
      begin
        alter schema outlast owner to outlast_owner;
      exception when insufficient_privilege then
        grant usage, create on schema outlast to outlast_owner;
      end;
    end if;
    for x in
      select case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end as kind, c.oid::regclass as it
      from pg_class c
      where c.relnamespace = s and c.relkind in ('r', 'p', 'v', 'S') and c.relowner <> own
        and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid
                          and c.relkind = 'S' and d.deptype in ('a', 'i'))
    loop
      execute format('alter %s %s owner to outlast_owner', x.kind, x.it);
    end loop;
    for x in
      select t.oid::regtype as it from pg_type t left join pg_class c on c.oid = t.typrelid
      where t.typnamespace = s and (c.relkind = 'c' or t.typtype = 'd') and t.typowner <> own
    loop
      execute format('alter type %s owner to outlast_owner', x.it);
    end loop;
    for x in select p.oid::regprocedure as it from pg_proc p where p.pronamespace = s and p.proowner <> own loop
      execute format('alter function %s owner to outlast_owner', x.it);
    end loop;
  end if;

  -- Functions: the owner's rights and a fixed search path where the list says so; never a right for everybody.
  for x in
    select p.oid::regprocedure as it from pg_proc p join outlast._doors() d on d.name = p.proname
    where p.pronamespace = s and d.as_owner
      and (not p.prosecdef or not coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp'])
  loop
    execute format('alter function %s security definer set search_path = pg_catalog, pg_temp', x.it);
  end loop;
  for x in
    select p.oid::regprocedure as it from pg_proc p
    where p.pronamespace = s and exists (
      select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0)
  loop
    execute format('revoke all on function %s from public', x.it);
  end loop;

  foreach role in array array['outlast_emitter', 'outlast_engine', 'outlast_reader'] loop
    select r.oid into own from pg_roles r where r.rolname = role;
    continue when own is null;
    if not exists (select from pg_namespace n, aclexplode(n.nspacl) a where n.oid = s and a.grantee = own) then
      execute format('grant usage on schema outlast to %I', role);
    end if;
    for x in
      select p.oid::regprocedure as it, d.name is not null as wanted
      from pg_proc p
      left join outlast._doors() d on d.name = p.proname and substr(role, length('outlast') + 2) = any (d.callers)
      where p.pronamespace = s
        and (d.name is not null) <> exists (select from aclexplode(p.proacl) a where a.grantee = own)
    loop
      execute format(case when x.wanted then 'grant execute on function %s to %I'
                     else 'revoke all on function %s from %I' end, x.it, role);
    end loop;
  end loop;

  -- Tables: nothing but reading, and that for whoever handles the events anyway.
  if exists (select from pg_roles r where r.rolname = 'outlast_engine') then
    for x in
      select c.oid::regclass as it from pg_class c
      where c.relnamespace = s and (c.relkind in ('r', 'p', 'v') or c.relname = '_event_id')
        and not exists (select from aclexplode(c.relacl) a
                        join pg_roles r on r.oid = a.grantee and r.rolname = 'outlast_engine')
    loop
      execute format('grant select on %s to outlast_engine', x.it);
    end loop;
  end if;
  -- Views without what only its consumers should see, column by column: `select *` is not for readers.
  if exists (select from pg_roles r where r.rolname = 'outlast_reader') then
    for x in
      select c.oid::regclass as it, string_agg(format('%I', a.attname), ', ' order by a.attnum) as columns
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
      where c.relnamespace = s and c.relkind = 'v' and a.attname <> 'payload'
        and not has_column_privilege('outlast_reader', c.oid, a.attnum, 'select')
      group by c.oid
    loop
      execute format('grant select (%s) on %s to outlast_reader', x.columns, x.it);
    end loop;
    if not has_table_privilege('outlast_reader', 'outlast._migration', 'select') then
      grant select on outlast._migration, outlast._functions, outlast._event_id to outlast_reader;
    end if;
  end if;
  return query select * from outlast._missing_rights();
end $$;
