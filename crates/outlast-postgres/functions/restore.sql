-- Restore: is this still the database that acknowledged what processes were told, and how a person lets work go on.

-- Transaction ids restarted with a dump or a logical copy; then what is stored of them means nothing here.
create or replace function outlast._xids_are_ours() returns boolean
language plpgsql stable                          -- not sql: that is planned anew on each claim
as $$
begin
  return (select count(*) = 2 and bool_and(m.own_xid = m.xmin::text::bigint) from outlast._marker m);
end $$;

-- The timeline of this server: another one after each promotion and each restore. '' where the server does not tell.
create or replace function outlast._timeline() returns text
language plpgsql stable
as $$
begin
  if pg_is_in_recovery() then return ''; end if;
  return left(pg_walfile_name(pg_current_wal_lsn()), 8);
exception when others then
  return '';
end $$;

-- Nobody claims while a person must look first; and while only what leaves the database has to wait, local consumers do.
create or replace function outlast._check_running(consumer int default null) returns void
language plpgsql stable
as $$
declare
  h outlast._house;
begin
  -- Nearly always: one statement.
  if (select x.stopped is null and x.held is null
        and x.database_oid = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
        and (select count(*) = 2 and bool_and(m.own_xid = m.xmin::text::bigint) from outlast._marker m)
      from outlast._house x) then
    return;
  end if;
  select * into h from outlast._house x;
  if h.stopped is not null then
    raise exception 'stopped: %', h.stopped using errcode = 'OL004';
  end if;
  if not outlast._xids_are_ours() then
    raise exception 'stopped: this database was restored from a dump or copied logically: transaction ids restarted'
      using errcode = 'OL004', hint = 'run `outlast restore status`, then `outlast restore confirm`';
  end if;
  if h.database_oid <> (select d.oid from pg_catalog.pg_database d where d.datname = current_database()) then
    raise exception 'stopped: this database is a copy of the one that was migrated'
      using errcode = 'OL004', hint = 'run `outlast restore status`, then `outlast restore confirm`';
  end if;
  if h.held is not null and not exists (
    select from outlast._consumer c where c.id = _check_running.consumer and c.local) then
    raise exception 'held: %', h.held
      using errcode = 'OL020', hint = 'run `outlast restore status`, then `outlast restore confirm`';
  end if;
end $$;

-- Where am I: what a process asks on each new connection.
create or replace function outlast._where(process uuid, seq bigint, nonce uuid)
returns table (deployment text, database_is_ours boolean, xids_are_ours boolean, remembered boolean, stopped text, standby boolean,
               held text, confirmed bigint, greeted boolean)
language sql stable
as $$
  select h.deployment,
         h.database_oid = (select d.oid from pg_catalog.pg_database d where d.datname = current_database()),
         outlast._xids_are_ours(),
         _where.seq = 0 or exists (select from outlast._process p
           where p.process = _where.process and p.seq = _where.seq and p.nonce = _where.nonce),
         h.stopped, pg_is_in_recovery(), h.held, h.confirmed,
         exists (select from outlast._server s
                 where s.started = pg_postmaster_start_time() and s.timeline = outlast._timeline())
         and (_where.seq = 0 or exists (select from outlast._process p
           where p.process = _where.process and p.seq = _where.seq and p.server = pg_postmaster_start_time()))
  from outlast._house h
$$;

-- What leaves the database waits for a person from now on. The first reason stays.
create or replace function outlast._hold(reason text, detail jsonb default null, actor text default 'outlast') returns void
language plpgsql volatile
as $$
begin
  update outlast._house h set held = outlast._clean(_hold.reason) where h.held is null;
  if found then
    perform outlast._audited('restore.held', 'database', coalesce(detail, '{}') || jsonb_build_object('reason', _hold.reason), actor);
  end if;
end $$;

-- A process has come through to this run of the server and found what it was told of. The first one to meet a new timeline
-- judges it. Whoever follows a primary takes over transactions that are younger than his own start; a restored backup ends
-- with older ones. So the second is held, although no process has missed anything: they may all have been started anew.
create or replace function outlast._arrive(process uuid, seq bigint, nonce uuid) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  now_on text := outlast._timeline();
  started timestamptz := pg_postmaster_start_time();
  replayed timestamptz := pg_last_xact_replay_timestamp();
  before outlast._server;
begin
  select * into before from outlast._server s order by s.seen_at desc limit 1;
  insert into outlast._server (started, timeline, replayed, seen_at)
  values (started, now_on, replayed, outlast.clock()) on conflict do nothing;
  if found and before.timeline <> '' and now_on <> '' and before.timeline <> now_on then
    perform outlast._audited('server.promoted', 'database', jsonb_build_object(
      'timeline', now_on, 'before', before.timeline, 'replayed', replayed, 'started', started), 'outlast');
    if replayed < started then
      perform outlast._hold(format(
        'this looks like a restored backup: it ends with a transaction of %s, and the server was started at %s', replayed, started));
    end if;
  end if;
  -- With the number it has: a mark says that its process is still there, too.
  update outlast._process p set server = started, written_at = outlast.clock()
  where p.process = _arrive.process and p.seq = _arrive.seq and p.nonce = _arrive.nonce and p.server <> started;
end $$;

-- A process was told of a commit that is not here.
create or replace function outlast._rewound(process uuid, told bigint) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  known bigint := (select max(p.seq) from outlast._process p where p.process = _rewound.process);
begin
  insert into outlast._missing as m (process, told, known, found_at)
  values (_rewound.process, _rewound.told, known, outlast.clock())
  on conflict (process) do update set told = greatest(m.told, excluded.told);
  perform outlast._hold(format('history was rewound: process %s was told of its commit %s, the last one here is %s',
    process, told, coalesce(known::text, 'none')));
end $$;

-- Above all ids that anything here refers to.
create or replace function outlast._id_top() returns bigint
language plpgsql stable
as $$
declare
  top bigint := coalesce(pg_sequence_last_value('outlast._event_id'), 0);
begin
  -- One leaf at a time: over all of them there is no index for it.
  for s in 0..15 loop
    top := greatest(top, (select max(e.id) from outlast._event e where e.slot = s));
  end loop;
  return greatest(top, (select max(greatest((b.a).hi, (b.b).hi, b.hi)) from outlast._batch b),
                  (select max(r.seq) from outlast._job_ready r), (select max(m.id) from outlast._entity_mark m));
end $$;

-- Events that were emitted here under ids that the log had used before, because the sequence did not come along (logical
-- replication leaves sequences behind). Told by their time: all that a tick has seen, or that has a higher id, is older.
create or replace function outlast._reused(last bigint, top bigint) returns table (slot smallint, id bigint)
language plpgsql stable
as $$
declare
  older timestamptz;
begin
  if last >= top then return; end if;
  older := greatest((select max(e.emitted_at) from outlast._event e where e.id > last),
                    (select max((b.b).at) from outlast._batch b));
  return query select e.slot, e.id from outlast._event e
    where e.id <= last and e.emitted_at > coalesce(older, '-infinity') order by e.id;
end $$;

-- After transaction ids restarted. All that is in the log now has committed: that is the base, below which no tick asks for
-- transaction ids any more. What a lane has gone past still follows from its own tick, whose ids are those of the old
-- server and are asked only about events of the old server, because new events get ids above everything that is stored.
create or replace function outlast._rebase() returns jsonb
language plpgsql volatile
set lock_timeout = '2s'                          -- emits wait behind us meanwhile
as $$
declare
  last bigint;
  top bigint;
  moved bigint;
  ended int := 0;
  token uuid;
  l outlast._lease;
begin
  perform outlast._check_isolation();
  -- Whoever has drawn an id holds a lock on the sequence to the end of his transaction, and an id is drawn a while before
  -- its row is written: to lock the table would leave out those in between. From here on no id below the base is undecided.
  alter sequence outlast._event_id owned by none;
  last := coalesce(pg_sequence_last_value('outlast._event_id'), 0);
  -- One more than all, so that every lane sees that there is something beyond its tick.
  top := outlast._id_top();
  perform setval('outlast._event_id', top + 1);
  update outlast._event e set id = fresh.id
  from (select r.slot, r.id as was, nextval('outlast._event_id') as id
        from (select x.slot, x.id from outlast._reused(last, top) x order by x.id offset 0) r) fresh
  where e.slot = fresh.slot and e.id = fresh.was;
  get diagnostics moved = row_count;
  top := coalesce(pg_sequence_last_value('outlast._event_id'), 0);

  -- Who had work in the old world has it no more: both locks, as whoever ends a lease, then a token that nobody knows. Not
  -- a reclaim, and no marks: nobody's worker has died.
  for token in select x.token from outlast._lease x order by x.token loop
    l := outlast._take(token);
    continue when l.token is null;
    if l.room = 'job' then perform outlast._give_back(l, false); end if;
    delete from outlast._lease x where x.token = l.token;
    ended := ended + 1;
    if l.room = 'batch' then
      insert into outlast._lease (token, room, consumer, lane, seq, reclaims, expires_at)
      values (gen_random_uuid(), 'batch', l.consumer, l.lane, l.seq, l.reclaims, 'epoch');
    end if;
  end loop;
  delete from outlast._started;
  delete from outlast._flush;
  update outlast._parked p set token = null where p.token is not null;
  perform outlast._park_kept(d.consumer, array_agg(d.event_id))
  from outlast._delivered d where d.envelope is not null group by d.consumer;
  delete from outlast._delivered d where d.envelope is not null;
  update outlast._delivered d set token = null, since = outlast.clock() where d.token is not null;
  -- The clock of the new server may be behind: no leaf is left out on account of a time of the old one.
  update outlast._batch x
  set a.at = '-infinity', a.open_at = (select array_agg('-infinity'::timestamptz) from unnest((x.a).open)),
      a.young_at = case when (x.a).young is not null then '-infinity'::timestamptz end,
      b.at = '-infinity', b.open_at = (select array_agg('-infinity'::timestamptz) from unnest((x.b).open)),
      b.young_at = case when (x.b).young is not null then '-infinity'::timestamptz end;

  -- Up to where marks were taken is told by transaction ids and numbers of the old server.
  delete from outlast._entity_look;
  delete from outlast._process;
  delete from outlast._server;
  update outlast._house h set base = top;
  perform outlast._mark();
  return jsonb_build_object('base', top, 'moved', moved, 'leases', ended);
end $$;

-- Writes the marker anew, as the first migration did.
create or replace function outlast._mark() returns void
language plpgsql volatile
as $$
begin
  delete from outlast._marker;
  for i in 1..8 loop
    begin
      insert into outlast._marker values (0);
      if i in (1, 8) then
        insert into outlast._marker select m.xmin::text::bigint from outlast._marker m where m.own_xid = 0;
      end if;
      delete from outlast._marker m where m.own_xid = 0;
    exception when raise_exception then null;
    end;
  end loop;
  if not outlast._xids_are_ours() then
    raise exception 'the marker was not written as it should be' using errcode = 'OL011';
  end if;
end $$;

-- A person has looked: from here on this is the database. Runs in a transaction of its own; answers what was done.
create or replace function outlast._confirm(reason text, actor text default null) returns jsonb
language plpgsql volatile
as $$
declare
  h outlast._house;
  ours boolean;
  did jsonb;
begin
  perform outlast._check_isolation();
  if pg_is_in_recovery() then
    raise exception 'this server is a standby' using errcode = 'OL009', hint = 'connect to the primary';
  end if;
  perform pg_advisory_xact_lock(outlast._lock_room(7314));
  select * into h from outlast._house x;
  ours := h.database_oid = (select d.oid from pg_catalog.pg_database d where d.datname = current_database());
  did := jsonb_build_object(
    'stopped', h.stopped, 'held', h.held, 'copied', not ours,
    'missing', (select coalesce(jsonb_agg(jsonb_build_object('process', m.process, 'told', m.told, 'known', m.known)), '[]')
                from outlast._missing m),
    'unreported', (select coalesce(jsonb_agg(p.process), '[]') from outlast.process p where not p.reported));
  if not outlast._xids_are_ours() then
    did := did || jsonb_build_object('rebased', outlast._rebase());
  end if;
  -- Which of them had been sent in what is gone nobody here knows: each is decided when it would leave.
  update outlast._command m set restored = true where m.state = 'waiting';
  delete from outlast._missing;
  -- Who comes now and was told more than is here is told that a person knows.
  delete from outlast._process p where p.server <> pg_postmaster_start_time();
  update outlast._house x
  set stopped = null, held = null, confirmed = x.confirmed + 1,
      database_oid = (select d.oid from pg_catalog.pg_database d where d.datname = current_database());
  insert into outlast._server (started, timeline, replayed, seen_at)
  values (pg_postmaster_start_time(), outlast._timeline(), pg_last_xact_replay_timestamp(), outlast.clock())
  on conflict do nothing;
  perform outlast._audited('restore.confirmed', 'database', did || jsonb_build_object('reason', _confirm.reason), actor);
  notify outlast_wake;
  return did;
end $$;

-- An operator stops what leaves the database, or all, until somebody confirms.
create or replace function outlast._stop(reason text, everything boolean, actor text default null) returns void
language plpgsql volatile
as $$
begin
  if not everything then
    perform outlast._hold(reason, null, coalesce(actor, session_user));
    return;
  end if;
  update outlast._house h set stopped = coalesce(h.stopped, outlast._clean(_stop.reason));
  perform outlast._audited('restore.stopped', 'database', jsonb_build_object('reason', _stop.reason), actor);
end $$;

-- What this database is called; its workers must be configured for that name. Answers the name before.
create or replace function outlast._name_deployment(name text, actor text default null) returns text
language plpgsql volatile
as $$
declare
  before text := (select h.deployment from outlast._house h for update);
begin
  if name is null or name !~ '^[a-z0-9._/-]{1,100}$' then
    raise exception 'deployment % is not 1 to 100 of a-z 0-9 . _ / -', quote_nullable(left(name, 120)) using errcode = 'OL005';
  end if;
  if before is distinct from name then
    update outlast._house h set deployment = _name_deployment.name;
    perform outlast._audited('deployment.named', name, jsonb_build_object('before', before), actor);
  end if;
  return before;
end $$;

-- Processes that have let something out, each with its last mark. One that has not reported to this run of the server may
-- be gone, or may have been told of more than is here.
create or replace view outlast.process as
select p.process, max(p.seq) as seq, max(p.written_at) as last_at,
       bool_or(p.server = pg_postmaster_start_time()) as reported
from outlast._process p group by p.process;

create or replace function outlast._iso(at timestamptz) returns text
language sql stable
as $$ select to_char(at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

-- What a person wants to know before confirming, as one document.
create or replace function outlast._restore_status() returns jsonb
language plpgsql stable
as $$
declare
  last bigint := coalesce(pg_sequence_last_value('outlast._event_id'), 0);
  ours boolean := outlast._xids_are_ours();
begin
  return (select jsonb_build_object(
    'deployment', h.deployment, 'stopped', h.stopped, 'held', h.held,
    'database_is_ours', h.database_oid = (select d.oid from pg_catalog.pg_database d where d.datname = current_database()),
    'xids_are_ours', ours, 'confirmed', h.confirmed,
    'standby', pg_is_in_recovery(), 'server_started', outlast._iso(pg_postmaster_start_time()), 'timeline', outlast._timeline(),
    'servers_seen', (select count(*) from outlast._server),
    'timeline_before', (select s.timeline from outlast._server s where s.timeline <> outlast._timeline() order by s.seen_at desc limit 1),
    'last_id_drawn', last, 'last_id_used', outlast._id_top(),
    'ids_used_again', case when ours then 0 else (select count(*) from outlast._reused(last, outlast._id_top())) end,
    'events', (select count(*) from outlast._event),
    'newest_event_at', (select outlast._iso(max(e.emitted_at)) from outlast._event e),
    'batches_in_flight', (select count(*) from outlast._lease l where l.room = 'batch'),
    'events_in_flight', (select coalesce(sum(b.events), 0) from outlast._lease l
       join outlast._batch b on (b.consumer, b.lane, b.seq) = (l.consumer, l.lane, l.seq) where l.room = 'batch'),
    'parked', (select count(*) from outlast._parked), 'entities', (select count(*) from outlast._entity),
    'waiting_consumers', (select coalesce(jsonb_agg(c.name order by c.name), '[]') from outlast._consumer c
       where not c.local and c.state = 'active'),
    'missing', (select coalesce(jsonb_agg(jsonb_build_object(
         'process', m.process, 'told', m.told, 'known', m.known, 'found_at', outlast._iso(m.found_at)) order by m.found_at), '[]')
       from outlast._missing m),
    'processes', (select coalesce(jsonb_agg(jsonb_build_object(
         'process', p.process, 'last_at', outlast._iso(p.last_at), 'reported', p.reported) order by p.last_at desc), '[]')
       from (select * from outlast.process x order by x.last_at desc limit 100) p))
  from outlast._house h);
end $$;
