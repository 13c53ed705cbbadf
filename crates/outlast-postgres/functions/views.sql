-- What anybody may look at. Tables are private; these names are the public ones.

create or replace view outlast.event as
select event_id as id, type, schema_version as version, tenant, key, subject, source, actor, aggregate_version,
       correlation_id, causation_id, traceparent, headers, content_type, payload, emitted_at, id as log_id, key_seq, codec_key
from outlast._event;

create or replace view outlast.parked as
select c.name as consumer, p.event_id as id, p.type, p.schema_version as version, p.tenant, p.key, p.state, p.class,
       p.failures, p.crashes, p.reason, p.signature, p.next_at, p.token is not null as running, p.parked_at, p.changed_at,
       p.emitted_at, p.content_type, p.payload, p.log_id, k.behind,
       case when p.state = 'behind' then h.leader end as waits_for, p.codec_key, p.subject
from outlast._parked p join outlast._consumer c on c.id = p.consumer
left join outlast._parked_key k on k.consumer = p.consumer and k.leader = p.event_id
left join outlast._parked_key h on p.state = 'behind' and h.consumer = p.consumer and h.tenant = p.tenant and h.key = p.key;

-- Keys of ordered consumers that wait for one event.
create or replace view outlast.parked_key as
select c.name as consumer, k.tenant, k.key, k.leader, p.type, p.state, p.class, p.failures, p.reason, p.next_at, k.behind,
       k.at_limit as lane_paused, k.since
from outlast._parked_key k
join outlast._consumer c on c.id = k.consumer
left join outlast._parked p on p.consumer = k.consumer and p.event_id = k.leader;

-- Processes that have stopped starting events of a consumer, because its destination fails. One that died is not shown.
create or replace view outlast.outage as
select c.name as consumer, o.process, o.since, o.seen_at, o.probes, o.reason
from outlast._outage o join outlast._consumer c on c.id = o.consumer
where o.seen_at > outlast.clock() - interval '5 minutes';

-- What needs a person.
create or replace view outlast.incident as
select case p.class when 'too-old' then 'too-old delivery' else 'quarantined event' end as kind, c.name as consumer, c.owner,
       p.event_id as about, p.type, p.tenant, p.key, p.class,
       p.failures, p.reason, p.signature, p.changed_at as opened_at, p.schema_version::int as version, 1::bigint as count
from outlast._parked p join outlast._consumer c on c.id = p.consumer
where p.state = 'quarantined'
union all
-- To wait for a newer worker is no incident; to wait long is.
select 'waiting version', w.consumer, w.owner, w.about, w.type, '', null, 'waiting-version', 0,
       format('%s of %s version %s wait for a worker that knows it', w.count, w.type, w.version),
       outlast._signature(w.type, 'waiting-version', null), w.oldest, w.version, w.count
from (
  select c.name as consumer, c.owner, (array_agg(p.event_id order by p.changed_at, p.log_id))[1] as about, p.type,
         p.schema_version::int as version, count(*) as count, min(p.changed_at) as oldest
  from outlast._parked p join outlast._consumer c on c.id = p.consumer
  where p.state = 'waiting-version'
  group by c.name, c.owner, p.type, p.schema_version) w
where w.oldest < outlast.clock() - outlast._setting_interval('parked.version_incident')
union all
select 'paused lane', c.name, c.owner, k.leader, coalesce(p.type, ''), k.tenant, k.key, coalesce(p.class, 'behind'),
       coalesce(p.failures, 0), format('%s events are behind this one: the lane of their key is not read', k.behind),
       p.signature, k.since, p.schema_version::int, k.behind::bigint
from outlast._parked_key k
join outlast._consumer c on c.id = k.consumer
left join outlast._parked p on p.consumer = k.consumer and p.event_id = k.leader
where k.at_limit
union all
select 'unreadable message', c.name, c.owner, u.id, '', '', null, 'permanent', 0, u.why,
       outlast._signature('', 'unreadable', u.why), u.first_at, null, u.seen
from outlast._unreadable u join outlast._consumer c on c.id = u.consumer
union all
select case when j.kind = 'j' then 'stopped job' when j.kind = 'e' then 'stopped entity' when s.class = 'unknown' then 'unknown command' else 'stopped command' end, j.name, null, j.id, j.name, j.tenant, j.key, s.class, s.failures, s.reason, s.signature, s.incident_at,
       j.schema_version::int, 1
from outlast._job_state s join outlast._job j on j.id = s.id
where s.incident_at is not null
union all
select 'contradicted command', j.name, null, j.id, j.name, j.tenant, j.key, 'contradicted', 0, c.reason,
       outlast._signature(j.name, 'contradicted', c.reason), c.at, j.schema_version::int, 1
from outlast._contradiction c join outlast._job j on j.id = c.command
union all
-- Known by what its provider would have been told; it becomes one when it is a week old.
select 'settlement without a command', s.name, null, outlast._provider_key(s.tenant, s.name, s.key)::uuid, s.name, s.tenant, s.key, 'early', 0,
       'its provider told the end of a command that nobody has given', outlast._signature(s.name, 'early', null),
       min(s.at) + interval '7 days', null, count(*)
from outlast._settlement s
where s.at < outlast.clock() - interval '7 days'
group by s.tenant, s.name, s.key
union all
select 'late refs', j.name, null, j.id, j.name, j.tenant, j.key, 'late-refs', 0,
       'a runner that had lost its lease had made something elsewhere: look whether it is still needed',
       outlast._signature(j.name, 'late-refs', null), min(l.at), j.schema_version::int, count(*)
from outlast._late_refs l join outlast._job j on j.id = l.entity
group by j.id;

-- What was folded is known by its log id: it is shown while the log has the event, and without its time.
create or replace view outlast.processed as
select c.name as consumer, p.event_id as id, case p.outcome when 'd' then 'done' else 'skipped' end as outcome, p.reason, p.at
from outlast._processed_event p join outlast._consumer c on c.id = p.consumer
union all
select c.name, e.event_id, 'done', null, null
from outlast._event e
cross join outlast._consumer c
join outlast._folded f on f.consumer = c.id and f.base = e.id / 8192 * 8192
where get_bit(f.done, (e.id % 8192)::int) = 1
  and not exists (
    select from outlast._processed_event p
    where p.slot = outlast._inbox_slot(e.event_id) and p.consumer = c.id and p.event_id = e.event_id)
union all
select c.name, f.event_id, case f.outcome when 'd' then 'done' else 'skipped' end, f.reason, f.at
from outlast._foreign_event f join outlast._consumer c on c.id = f.consumer
union all
select c.name, m.event_id, case m.outcome when 'd' then 'done' else 'skipped' end, m.reason, m.at
from outlast._moved_event m join outlast._consumer c on c.id = m.consumer;

-- Messages of brokers that are no event of ours, as they came.
create or replace view outlast.unreadable as
select c.name as consumer, u.id, u.why, u.seen, u.first_at, u.last_at, u.broker_id, c.broker, c.topic, u.payload
from outlast._unreadable u join outlast._consumer c on c.id = u.consumer;

create or replace view outlast.lease as
select l.token, l.room, c.name as consumer, l.lane, l.seq, l.event_id, l.reclaims, l.process, l.holder, l.expires_at,
       l.expires_at < outlast.clock() as lapsed
from outlast._lease l left join outlast._consumer c on c.id = l.consumer;

create or replace view outlast.consumer as
select c.name, c.state, c.reason, c.ordered, c.lanes, c.start, c.owner, c.attempts, c.created_at,
       (select array_agg(t.type order by t.type) from outlast._consumer_type t where t.consumer = c.id) as types,
       s.ids as ids_behind,
       (select count(*) from outlast._lease l where l.consumer = c.id and l.lane is not null and l.room = 'batch') as batches,
       (select coalesce(sum(b.events), 0) from outlast._lease l
          join outlast._batch b on (b.consumer, b.lane, b.seq) = (l.consumer, l.lane, l.seq)
        where l.consumer = c.id and l.lane is not null and l.room = 'batch')
       + (select count(*) from outlast._delivered d where d.consumer = c.id and d.token is not null) as in_flight,
       (select count(*) from outlast._parked p where p.consumer = c.id and p.state = 'retry') as retrying,
       (select count(*) from outlast._parked p where p.consumer = c.id and p.state = 'quarantined') as quarantined,
       (select count(*) from outlast._parked p where p.consumer = c.id and p.state = 'waiting-version') as waiting_version,
       (select min(p.parked_at) from outlast._parked p where p.consumer = c.id) as oldest_parked_at,
       (select count(*) from outlast._parked_key k where k.consumer = c.id) as blocked_keys,
       (select coalesce(sum(k.behind), 0)::bigint from outlast._parked_key k where k.consumer = c.id) as behind,
       (select count(*) from outlast.outage o where o.consumer = c.name) as outages,
       (select o.reason from outlast.outage o where o.consumer = c.name order by o.seen_at desc limit 1) as outage,
       c.tenants, c.sources, c.lanes_wanted, s.bytes as bytes_held, s.moved_at, s.side_lanes,
       (select array_agg(f.name order by f.renamed_at) from outlast._former_name f where f.consumer = c.id) as former_names,
       c.broker, c.topic, c.subscription,
       (select count(*) from outlast._unreadable u where u.consumer = c.id) as unreadable, c.ack_ms
from outlast._consumer c
cross join lateral outlast._whereabouts(c.id) s;
