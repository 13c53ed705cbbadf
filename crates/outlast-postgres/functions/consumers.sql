-- What operators do to a consumer for good: a new name, its end, a type less, another number of lanes. Each with a line of
-- the audit in the same commit.

-- The consumer of this name. OL012: there is none; OL014: not any more.
create or replace function outlast._named(name text) returns outlast._consumer
language plpgsql stable
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  now text;
begin
  select * into c from outlast._consumer x where x.name = _named.name;
  if c.id is not null then return c; end if;
  select x.name into now from outlast._former_name f join outlast._consumer x on x.id = f.consumer where f.name = _named.name;
  if now is not null then
    raise exception 'consumer % is now called %', _named.name, now using errcode = 'OL014';
  end if;
  raise exception 'consumer % is not registered', quote_nullable(_named.name) using errcode = 'OL012';
end $$;

-- Refuses code that is a consumer which is no more: it would begin a second one, or work for nothing.
create or replace function outlast._check_alive(name text) returns void
language plpgsql stable
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  now text;
begin
  select x.name into now from outlast._former_name f join outlast._consumer x on x.id = f.consumer where f.name = _check_alive.name;
  if now is not null then
    raise exception 'consumer % is now called %: register that name', _check_alive.name, now using errcode = 'OL014';
  end if;
  select * into c from outlast._consumer x where x.name = _check_alive.name and x.state = 'retired';
  if c.id is not null then
    raise exception 'consumer % is retired: %', c.name, c.reason
      using errcode = 'OL014', hint = 'a consumer does not come back: register another name';
  end if;
end $$;

-- Waits until nobody claims for this consumer, and keeps it so to the end of this transaction.
create or replace function outlast._hold_lanes(c outlast._consumer) returns void
language sql volatile
as $$ select pg_advisory_xact_lock(outlast._lane_lock((c).id, l)) from generate_series(0, (c).lanes - 1) l order by l $$;

-- A new name for the same consumer: its progress, completions and parked events stay. The old name is refused from now on,
-- until it is the new name again. Running workers go on: they know the consumer by its number.
create or replace function outlast.rename_consumer(old text, new text, actor text default null) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  taken text;
begin
  if rename_consumer.new is null or rename_consumer.new !~ '^[a-z0-9._/-]{1,100}$' then
    raise exception 'consumer % is not 1 to 100 of a-z 0-9 . _ / -', quote_nullable(left(rename_consumer.new, 120)) using errcode = 'OL005';
  end if;
  -- As registrations take them, in one order.
  perform pg_advisory_xact_lock(hashtextextended('consumer ' || n, outlast._lock_room(7308)))
  from (select n from unnest(array[rename_consumer.old, rename_consumer.new]) n where n is not null order by n) n;
  c := outlast._named(rename_consumer.old);
  select x.name into taken from outlast._consumer x where x.name = rename_consumer.new
  union all
  select f.name from outlast._former_name f where f.name = rename_consumer.new and f.consumer <> c.id;
  if taken is not null then
    raise exception 'consumer % cannot be called %: that name is or was another one''s', c.name, taken using errcode = 'OL005';
  end if;
  delete from outlast._former_name f where f.name = rename_consumer.new;
  insert into outlast._former_name (name, consumer, renamed_at) values (c.name, c.id, outlast.clock());
  update outlast._consumer x set name = rename_consumer.new where x.id = c.id;
  perform outlast._audited('consumer.renamed', c.name, jsonb_build_object('to', rename_consumer.new), rename_consumer.actor);
end $$;

-- Where a consumer stands: ids after its place, of every type (an upper bound of its events); the bytes of the leaves of the
-- log that it still has to read; its side lanes; and when it was last moved on: while there is something behind its place,
-- whoever runs it does that, so this is when somebody last ran it.
create or replace function outlast._whereabouts(consumer int, out ids bigint, out bytes bigint, out side_lanes int, out moved_at timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  since timestamptz;
begin
  select greatest(0, coalesce(pg_sequence_last_value('outlast._event_id'), 0) - min(p.hi)),
         min(case when p.hi < (p.b).hi then (p.a).at else (p.b).at end),
         count(*) filter (where p.lane >= 1024), max(p.claimed_at)
  into ids, since, side_lanes, moved_at
  from outlast._places(_whereabouts.consumer) p;
  ids := coalesce(ids, 0);
  bytes := case when ids = 0 then 0 else (
    select sum(pg_total_relation_size(format('outlast._event_%s', s)::regclass))
    from unnest(outlast._log_slots(since, outlast.clock())) s) end;
end $$;

-- What a consumer has not done: events of the log that wait (counted up to `most`), those that a worker has, those parked.
create or replace function outlast._unfinished(
  consumer int, most int default 1000000, out waiting bigint, out more boolean, out in_flight bigint, out retrying bigint,
  out behind bigint, out waiting_version bigint, out quarantined bigint, out ids bigint, out bytes bigint)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  place outlast._batch;
  n bigint;
  of_id int := _unfinished.consumer;
begin
  waiting := 0;
  more := false;
  for place in select p.* from outlast._places(of_id) p loop
    exit when more;
    select count(*) into n from (
      select from outlast._event e
      where e.id > least(place.hi, (place.a).hi)
        and outlast._in_lane(place.lane, place.parts, place.tenants, place.without, e.key, e.id, e.tenant)
        and not (outlast._sees((place.a).snap, (place.a).hi, (place.a).base, e.id, e.xid)
                 or e.id <= place.hi and outlast._sees((place.b).snap, (place.b).hi, (place.b).base, e.id, e.xid))
        and outlast._takes(of_id, e.type, e.tenant, e.source, e.id, e.xid)
      limit _unfinished.most - waiting + 1) e;
    waiting := waiting + n;
    more := waiting > _unfinished.most;
  end loop;
  waiting := least(waiting, _unfinished.most);
  select count(*) into in_flight
  from outlast._lease l
  join outlast._batch x on (x.consumer, x.lane, x.seq) = (l.consumer, l.lane, l.seq)
  cross join lateral outlast._left(x)
  where l.room = 'batch' and l.consumer = of_id and l.lane is not null;
  in_flight := in_flight + (
    select count(*) from outlast._delivered d
    where d.consumer = of_id and d.token is not null and not exists (select from outlast._sealed(of_id, array[d.event_id])));
  select count(*) filter (where p.state = 'retry'), count(*) filter (where p.state = 'behind'),
         count(*) filter (where p.state = 'waiting-version'), count(*) filter (where p.state = 'quarantined')
  into retrying, behind, waiting_version, quarantined
  from outlast._parked p where p.consumer = of_id;
  select s.ids, s.bytes into ids, bytes from outlast._whereabouts(of_id) s;
end $$;

-- The end of a consumer: it holds nothing any more, and what it had not done is not done. Waits for seals that are under
-- way; what its workers do after that is refused. Answers what was given up.
create or replace function outlast.retire_consumer(consumer text, reason text, actor text default null) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '8s'
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  t uuid;
  given_up jsonb;
begin
  if coalesce(retire_consumer.reason, '') = '' then
    raise exception 'retire %: say why', quote_nullable(retire_consumer.consumer) using errcode = 'OL005';
  end if;
  c := outlast._named(retire_consumer.consumer);
  perform outlast._check_alive(c.name);
  perform outlast._hold_lanes(c);
  for t in select x.token from outlast._lease x where x.consumer = c.id order by x.token loop
    perform outlast._take(t);
  end loop;
  given_up := to_jsonb(u) from outlast._unfinished(c.id) u;
  delete from outlast._started s using outlast._lease x where x.consumer = c.id and s.token = x.token;
  delete from outlast._flush f using outlast._lease x where x.consumer = c.id and f.token = x.token;
  delete from outlast._lease x where x.consumer = c.id;
  delete from outlast._batch x where x.consumer = c.id;
  delete from outlast._delivered d where d.consumer = c.id;
  delete from outlast._outbox_row r where r.consumer = c.id;
  delete from outlast._parked_key k where k.consumer = c.id;
  delete from outlast._parked p where p.consumer = c.id;
  update outlast._consumer x
  set state = 'retired', reason = outlast._clean(retire_consumer.reason), lanes_wanted = null, lanes_until = null
  where x.id = c.id;
  perform outlast._audited('consumer.retired', c.name,
    given_up || jsonb_build_object('reason', outlast._clean(retire_consumer.reason)), retire_consumer.actor);
  return given_up;
end $$;

-- Takes a type (or pattern) from a consumer: what of it is parked is skipped, what comes is not its own. Answers how many
-- events of it are in work: then nothing was changed, and it has to be tried again.
create or replace function outlast.remove_type(consumer text, type text, reason text, actor text default null) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '8s'
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  busy int;
  id uuid;
  skipped int := 0;
begin
  if coalesce(remove_type.reason, '') = '' then
    raise exception 'remove a type of %: say why', quote_nullable(remove_type.consumer) using errcode = 'OL005';
  end if;
  c := outlast._named(remove_type.consumer);
  perform outlast._check_alive(c.name);
  perform outlast._hold_lanes(c);
  if not exists (select from outlast._consumer_type t where t.consumer = c.id and t.type = remove_type.type) then
    raise exception 'consumer % has no type %', c.name, quote_nullable(left(remove_type.type, 120)) using errcode = 'OL005';
  end if;
  if not exists (select from outlast._consumer_type t where t.consumer = c.id and t.type <> remove_type.type) then
    raise exception 'consumer % has no other type than %', c.name, remove_type.type
      using errcode = 'OL005', hint = 'retire the consumer instead';
  end if;
  select count(*) into busy
  from outlast._lease l
  join outlast._batch x on (x.consumer, x.lane, x.seq) = (l.consumer, l.lane, l.seq)
  cross join lateral outlast._left(x) r
  join outlast._event e on e.slot = r.slot and e.id = r.id
  where l.room = 'batch' and l.consumer = c.id and l.lane is not null and outlast._loses(c.id, remove_type.type, e.type);
  busy := busy + (select count(*) from outlast._parked p
                  where p.consumer = c.id and p.token is not null and outlast._loses(c.id, remove_type.type, p.type));
  if busy > 0 then return busy; end if;
  for id in
    select p.event_id from outlast._parked p
    where p.consumer = c.id and outlast._loses(c.id, remove_type.type, p.type) order by p.tenant, p.key, p.log_id
  loop
    perform outlast.skip(c.name, id, remove_type.reason, remove_type.actor);
    skipped := skipped + 1;
  end loop;
  delete from outlast._consumer_type t where t.consumer = c.id and t.type = remove_type.type;
  perform outlast._audited('consumer.type_removed', c.name, jsonb_build_object(
    'type', remove_type.type, 'reason', outlast._clean(remove_type.reason), 'skipped', skipped), remove_type.actor);
  return 0;
end $$;

-- Is an event of this type the consumer's by this entry alone?
create or replace function outlast._loses(consumer int, entry text, type text) returns boolean
language sql stable
as $$
  select outlast._matches(_loses.type, _loses.entry) and not exists (
    select from outlast._consumer_type t
    where t.consumer = _loses.consumer and t.type <> _loses.entry and outlast._matches(_loses.type, t.type))
$$;

-- Another number of lanes for an ordered consumer. Order is kept: every lane goes as far as a common tick and no further;
-- when all of them are there and nothing is in flight, the number changes in one commit, whoever claims next. The present
-- number takes a change back that is under way. Runs in a transaction of its own.
create or replace function outlast.change_lanes(consumer text, lanes int, actor text default null) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '8s'
as $$
#variable_conflict use_column
declare
  c outlast._consumer;
  until outlast._tick;
begin
  if change_lanes.lanes is null or change_lanes.lanes not between 1 and 1024 then
    raise exception 'lanes of %: % are not 1 to 1024', quote_nullable(change_lanes.consumer), change_lanes.lanes using errcode = 'OL005';
  end if;
  c := outlast._named(change_lanes.consumer);
  perform outlast._check_alive(c.name);
  if not c.ordered or c.broker is not null then
    raise exception 'consumer % %: it has no lanes', c.name, case when c.ordered then 'reads a broker' else 'is not ordered' end
      using errcode = 'OL005';
  end if;
  perform outlast._hold_lanes(c);
  select * into c from outlast._consumer x where x.id = c.id;
  if change_lanes.lanes <> c.lanes then
    -- Nobody claims: it is later than every tick that a lane has.
    select (p.b).* into until from outlast._places(c.id) p order by (p.b).base desc, (p.b).h desc limit 1;
    until := outlast._tick(until);
  end if;
  update outlast._consumer x
  set lanes_wanted = case when change_lanes.lanes <> c.lanes then change_lanes.lanes end, lanes_until = until
  where x.id = c.id;
  perform outlast._audited('consumer.lanes', c.name, jsonb_build_object('from', c.lanes, 'to', change_lanes.lanes), change_lanes.actor);
  notify outlast_wake;
end $$;

-- The change itself, under the locks of all lanes: if all stand at the common tick and nothing is in flight.
create or replace function outlast._change_lanes(c outlast._consumer, places outlast._batch[]) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at outlast._batch;
begin
  if cardinality(places) <> (c).lanes then return false; end if;
  foreach at in array places loop
    if outlast._later((c).lanes_until, at.b) or at.hi < (at.b).hi or outlast._in_flight(at) then return false; end if;
  end loop;
  select p.* into at from unnest(places) p order by p.seq desc limit 1;
  delete from outlast._batch x where x.consumer = (c).id;
  insert into outlast._batch (consumer, lane, seq, a, b, lo, hi, events, claimed_at, parts)
  select (c).id, l, at.seq + 1, (c).lanes_until, (c).lanes_until, ((c).lanes_until).hi, ((c).lanes_until).hi, 0, at.claimed_at, (c).lanes_wanted
  from generate_series(0, (c).lanes_wanted - 1) l;
  update outlast._consumer x set lanes = lanes_wanted, lanes_wanted = null, lanes_until = null where x.id = (c).id;
  perform outlast._audited('consumer.lanes_changed', (c).name, jsonb_build_object('from', (c).lanes, 'to', (c).lanes_wanted));
  return true;
end $$;

-- How far a change of lanes is; makes it if it can be made, for when no worker runs.
create or replace function outlast._lanes_standing(consumer text, out lanes int, out wanted int, out there int)
language plpgsql volatile
set lock_timeout = '8s'
as $$
#variable_conflict use_column
declare
  c outlast._consumer := outlast._named(_lanes_standing.consumer);
  places outlast._batch[];
begin
  perform outlast._hold_lanes(c);
  select * into c from outlast._consumer x where x.id = c.id;
  places := array(select p from outlast._places(c.id) p);
  if c.lanes_wanted is not null and outlast._change_lanes(c, places) then
    select * into c from outlast._consumer x where x.id = c.id;
  end if;
  lanes := c.lanes;
  wanted := c.lanes_wanted;
  there := (select count(*) from unnest(places) p
            where p.lane < 1024 and p.hi >= (p.b).hi and not outlast._in_flight(p) and not outlast._later(c.lanes_until, p.b));
end $$;
