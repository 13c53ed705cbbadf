-- The invariants, read from the tables alone. Each row says how often one is broken; all must be zero.

-- Where an event stands for a consumer that has gone past it: a row for each that is neither sealed, nor parked, nor
-- in a batch in flight. There must be none. Whether the consumer takes an event at all is asked last, of what is left over:
-- it is the dearest question, and of a million events that are sealed nobody has to ask it.
create or replace function outlast._lost(consumer int) returns setof uuid
language sql stable
as $$
  with past as materialized (
    select e.event_id, e.id, e.xid, e.key, e.tenant, e.type, e.source
    from outlast._event e
    join outlast._consumer c on c.id = _lost.consumer
    join outlast._places(_lost.consumer) n on outlast._in_lane(n.lane, n.parts, n.tenants, n.without, e.key, e.id, e.tenant)
    where (outlast._sees((n.a).snap, (n.a).hi, (n.a).base, e.id, e.xid)
        or outlast._sees((n.b).snap, (n.b).hi, (n.b).base, e.id, e.xid) and e.id <= n.hi)
      and not outlast._sees((c.began).snap, (c.began).hi, (c.began).base, e.id, e.xid)
  ), open as materialized (
    select p.*
    from past p
    left join outlast._folded f on f.consumer = _lost.consumer and f.base = p.id / 8192 * 8192
    where (f.done is null or get_bit(f.done, (p.id % 8192)::int) = 0)
      and not exists (select from outlast._processed_event s
                      where s.slot = outlast._inbox_slot(p.event_id) and s.consumer = _lost.consumer and s.event_id = p.event_id)
      and not exists (select from outlast._parked k where k.consumer = _lost.consumer and k.event_id = p.event_id)
      and not exists (
        select from outlast._lease l
        join outlast._batch b on (b.consumer, b.lane, b.seq) = (l.consumer, l.lane, l.seq)
        where l.room = 'batch' and l.consumer = _lost.consumer and p.id > b.lo and p.id <= b.hi
          and outlast._in_lane(b.lane, b.parts, b.tenants, b.without, p.key, p.id, p.tenant)
          and outlast._sees((b.b).snap, (b.b).hi, (b.b).base, p.id, p.xid)
          and not outlast._sees((b.a).snap, (b.a).hi, (b.a).base, p.id, p.xid))
  )
  select o.event_id from open o where outlast._takes(_lost.consumer, o.type, o.tenant, o.source, o.id, o.xid)
$$;

-- Without JIT: without statistics most of this counts as dear, and compiling it took 5 s for 20,000 events, all else 0.1 s.
create or replace function outlast._verify() returns table (invariant text, violations bigint, example text)
language plpgsql stable
set jit = off
as $$
begin
  return query select 'every event a consumer has passed is sealed, parked or in flight',
    count(*), min(c.name || ' ' || e)
    from outlast._consumer c cross join lateral outlast._lost(c.id) e where c.state <> 'retired';
  return query select 'nothing is parked that is sealed and not running',
    count(*), min(p.event_id::text)
    from outlast._parked p
    where p.token is null and (outlast._bit(p.consumer, p.log_id) or exists (
      select from outlast._processed_event s
      where s.slot = outlast._inbox_slot(p.event_id) and s.consumer = p.consumer and s.event_id = p.event_id) or exists (
      select from outlast._moved_event m
      where m.slot = outlast._inbox_slot(p.event_id) and m.consumer = p.consumer and m.event_id = p.event_id))
      -- Both may have committed side by side; the end of the batch tidies up.
      and not exists (
        select from outlast._lease l
        join outlast._batch b on (b.consumer, b.lane, b.seq) = (l.consumer, l.lane, l.seq)
        where l.room = 'batch' and l.consumer = p.consumer and p.log_id > b.lo and p.log_id <= b.hi)
      and not exists (
        select from outlast._delivered d where d.consumer = p.consumer and d.event_id = p.event_id and d.token is not null);
  return query select 'nobody is behind without a leader',
    count(*), min(p.event_id::text)
    from outlast._parked p
    where p.state = 'behind' and not exists (
      select from outlast._parked_key k where k.consumer = p.consumer and k.tenant = p.tenant and k.key = p.key);
  return query select 'a key is parked under the one event that leads it',
    count(*), min(k.key)
    from outlast._parked_key k
    cross join lateral (
      select count(*) as n, bool_or(p.event_id = k.leader) as his from outlast._parked p
      where p.consumer = k.consumer and p.tenant = k.tenant and p.key = k.key and p.state <> 'behind') l
    where l.n > 1 or (l.n = 1 and not l.his)
       -- Complete, and the lease of its last try has not ended yet.
       or (l.n = 0 and not exists (
             select from outlast._lease z where z.room = 'parked' and z.consumer = k.consumer and z.event_id = k.leader)
           -- In work under a lease of a delivery, or to be delivered again.
           and not exists (
             select from outlast._delivered d where d.consumer = k.consumer and d.event_id = k.leader));
  return query select 'what is parked on an ordered consumer has its key parked',
    count(*), min(p.event_id::text)
    from outlast._parked p join outlast._consumer c on c.id = p.consumer and c.ordered
    where p.key is not null and not exists (
      select from outlast._parked_key k where k.consumer = p.consumer and k.tenant = p.tenant and k.key = p.key);
  return query select 'a parked key counts those behind it',
    count(*), min(k.key)
    from outlast._parked_key k join outlast._consumer c on c.id = k.consumer
    cross join lateral (
      select count(*) as n from outlast._parked p
      where p.consumer = k.consumer and p.tenant = k.tenant and p.key = k.key and p.state = 'behind') b
    where b.n <> k.behind or (k.at_limit and k.behind < c.behind_most);
  return query select 'no batch is of a lane that there cannot be',
    count(*), min(format('%s, lane %s', b.consumer, b.lane))
    from outlast._batch b
    where (b.lane >= 0 and b.hi >= b.lo and b.lane % 1024 < b.parts and (b.lane >= 1024) = (b.tenants is not null)
           and (b.without is null) = (b.sides is null) and (b.sides is null or b.lane < 1024)) is not true;
  return query select 'a lease has what its room has',
    count(*), min(l.token::text)
    from outlast._lease l
    where (l.room = 'batch') <> (l.seq is not null) or (l.room = 'batch') <> (l.lane is not null)
       or (l.room in ('parked', 'rewind')) <> (l.event_id is not null)
       or (l.room in ('poller', 'maintenance', 'job')) <> (l.consumer is null);
  return query select 'every lease names what it leases',
    count(*), min(l.token::text)
    from outlast._lease l
    where (l.room = 'batch' and not exists (
             select from outlast._batch b where (b.consumer, b.lane, b.seq) = (l.consumer, l.lane, l.seq)))
       or (l.room = 'parked' and l.expires_at >= outlast.clock() and not exists (
             select from outlast._parked p where p.consumer = l.consumer and p.event_id = l.event_id)
           and not exists (select from outlast._sealed(l.consumer, array[l.event_id])))
       or (l.room = 'delivered' and not exists (select from outlast._delivered d where d.token = l.token));
  return query select 'what was delivered and has an owner is under his lease',
    count(*), min(d.event_id::text)
    from outlast._delivered d
    where d.token is not null and not exists (select from outlast._lease l where l.token = d.token and l.room = 'delivered');
  return query select 'a completion is in one inbox only',
    count(*), min(f.event_id::text)
    from (select x.consumer, x.event_id from outlast._foreign_event x
          union all select m.consumer, m.event_id from outlast._moved_event m) f
    where exists (select from outlast._processed_event s
                  where s.slot = outlast._inbox_slot(f.event_id) and s.consumer = f.consumer and s.event_id = f.event_id);
  return query select 'no lease is older than ten longest leases',
    count(*), min(l.token::text)
    from outlast._lease l
    where l.expires_at < outlast.clock() - interval '50 minutes' and l.expires_at > 'epoch';   -- 'epoch': given back
  return query select 'no lease ends further away than the longest lease',
    count(*), min(l.token::text)
    from outlast._lease l where l.expires_at > outlast.clock() + interval '6 minutes';
  return query select 'every lane of a consumer has a place',
    count(*), min(c.name)
    from outlast._consumer c
    where c.state <> 'retired' and c.broker is null
      and c.lanes <> (select count(*) from outlast._places(c.id) p where p.lane < 1024 and p.parts = c.lanes);
  return query select 'side lanes hold what their main lane leaves out',
    count(*), min(c.name)
    from outlast._consumer c
    cross join lateral (select generate_series(0, c.lanes - 1) as part) l
    where (select array_agg(t order by t) from outlast._places(c.id) p, unnest(p.without) t where p.lane = l.part)
      is distinct from (select array_agg(t order by t) from outlast._places(c.id) p, unnest(p.tenants) t where p.lane % 1024 = l.part);
  return query select 'ids are drawn one by one and above all there are',
    (case when s.seqcache <> 1 or coalesce(pg_sequence_last_value('outlast._event_id'), 0) <
       greatest((select max(e.id) from outlast._event e), (select max(r.seq) from outlast._job_ready r), (select max(m.id) from outlast._entity_mark m), 0) then 1 else 0 end)::bigint,
    'outlast._event_id'
    from pg_catalog.pg_sequence s where s.seqrelid = 'outlast._event_id'::regclass;
  return query select 'bits of completions are counted and below the place up to which their consumer is folded',
    count(*), min(c.name || ' ' || f.base)
    from outlast._folded f join outlast._consumer c on c.id = f.consumer
    where f.completed <> bit_count(f.done)
       or f.base >= (select max(p.next) from outlast._fold_place p where p.consumer = f.consumer) is not false;
  return query select 'every event lies in the leaf of its time',
    count(*), min(e.event_id::text)
    from outlast._event e where e.slot <> outlast._log_slot(e.emitted_at);
  return query select 'this is the database it was',
    (case when w.database_is_ours and w.xids_are_ours then 0 else 1 end)::bigint, null
    from outlast._where(gen_random_uuid(), 0, gen_random_uuid()) w;
  -- Of jobs: what has not ended is in one place, or a person has it.
  return query select 'every job has ended, is ready, waits for its time or a person, or is in work',
    count(*), min(j.name || ' ' || j.id)
    from outlast._job j
    where (select count(*) from outlast._job_end x where x.id = j.id) + (select count(*) from outlast._job_ready x where x.id = j.id)
        + (select count(*) from outlast._job_later x where x.id = j.id) + (select count(*) from outlast._job_claimed x where x.id = j.id)
        + (select count(*) from outlast._job_state x where x.id = j.id and x.incident_at is not null)
        + (select count(*) from outlast._exclusive x where x.id = j.id and x.blocked)
        + (select count(*) from outlast._entity x where x.id = j.id and x.converged_at is not null) <> 1;
  return query select 'every job in work is under a lease',
    count(*), min(c.id::text)
    from outlast._job_claimed c where not exists (select from outlast._lease l where l.token = c.token and l.room = 'job');
  return query select 'nothing is left of a job that is not there',
    count(*), min(x.id::text)
    from (select r.id from outlast._job_ready r union all select r.id from outlast._job_later r union all select r.id from outlast._job_claimed r
          union all select r.id from outlast._job_end r union all select r.id from outlast._job_state r) x
    where not exists (select from outlast._job j where j.id = x.id);
  return query select 'a command has ended where its job has, and nowhere else',
    count(*), min(j.name || ' ' || j.id)
    from outlast._job j
    left join outlast._command m on m.id = j.id
    where (j.kind = 'c') <> (m.id is not null)
       or j.kind = 'c' and (m.state in ('settled', 'rejected', 'obsolete', 'cancelled', 'abandoned'))
                         <> exists (select from outlast._job_end e where e.id = j.id);
  return query select 'nobody waits for a key that is free, and nobody has one after its end',
    count(*), min(e.tenant || ' ' || e.key)
    from outlast._exclusive e
    where e.blocked and not exists (
        select from outlast._exclusive x
        where x.tenant = e.tenant and x.key = e.key and x.id <> e.id
          and (x.held or x.seq < e.seq and exists (select from outlast._job_ready r where r.id = x.id union all select from outlast._job_claimed r where r.id = x.id)))
      or exists (select from outlast._job_end d where d.id = e.id)
      or exists (select from outlast._entity d where d.id = e.id and d.converged_at is not null);
  return query select 'one at a time has a key of exclusion',
    count(*), min(x.tenant || ' ' || x.key)
    from (select e.tenant, e.key from outlast._exclusive e where e.held group by e.tenant, e.key having count(*) > 1) x;
  return query select 'what runs at a provider is in work',
    count(*), min(m.id::text)
    from outlast._command m where m.state = 'running' and not exists (select from outlast._job_claimed c where c.id = m.id);
  return query select 'no mark of an entity lies where nobody looks',
    count(*), min(m.name || ' ' || m.entity_id)
    from outlast._entity_mark m where m.id <= (select l.below from outlast._entity_look l order by l.xid desc limit 1);
  return query select 'what is to be cleaned up of an entity is due',
    count(*), min(t.id::text)
    from outlast._tombstone t where not exists (select from outlast._entity e where e.id = t.entity and e.converged_at is null);
  return query select 'an entity has its job, and nobody else has one of its kind',
    count(*), min(coalesce(e.name || ' ' || e.entity_id, j.id::text))
    from (select x.* from outlast._job x where x.kind = 'e') j
    full join outlast._entity e on (e.id, e.name, e.tenant, e.entity_id) = (j.id, j.name, j.tenant, j.key)
    where j.id is null or e.id is null;
  return query select 'an entity in work has a fence number below what was drawn',
    count(*), min(e.name || ' ' || e.entity_id)
    from outlast._entity e where e.fence & ((1::bigint << 44) - 1) > coalesce(pg_sequence_last_value('outlast._event_id'), 0)
      and e.fence >> 44 = (select h.confirmed from outlast._house h);
end $$;
