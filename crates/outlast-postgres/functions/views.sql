-- What anybody may look at. Tables are private; these names are the public ones.

create or replace view outlast.event as
select event_id as id, type, schema_version as version, tenant, key, subject, source, actor, aggregate_version,
       correlation_id, causation_id, traceparent, headers, content_type, payload, emitted_at, id as log_id
from outlast._event;

create or replace view outlast.parked as
select c.name as consumer, p.event_id as id, p.type, p.schema_version as version, p.tenant, p.key, p.state, p.class,
       p.failures, p.crashes, p.reason, p.signature, p.next_at, p.token is not null as running, p.parked_at, p.changed_at,
       p.emitted_at, p.content_type, p.payload
from outlast._parked p join outlast._consumer c on c.id = p.consumer;

-- What needs a person.
create or replace view outlast.incident as
select 'quarantined event' as kind, c.name as consumer, c.owner, p.event_id as about, p.type, p.tenant, p.key, p.class,
       p.failures, p.reason, p.signature, p.changed_at as opened_at
from outlast._parked p join outlast._consumer c on c.id = p.consumer
where p.state = 'quarantined';

create or replace view outlast.processed as
select c.name as consumer, p.event_id as id, case p.outcome when 'd' then 'done' else 'skipped' end as outcome, p.reason, p.at
from outlast._processed_event p join outlast._consumer c on c.id = p.consumer;

create or replace view outlast.lease as
select l.token, l.room, c.name as consumer, l.lane, l.seq, l.event_id, l.reclaims, l.process, l.holder, l.expires_at,
       l.expires_at < outlast.clock() as lapsed
from outlast._lease l left join outlast._consumer c on c.id = l.consumer;

create or replace view outlast.consumer as
select c.name, c.state, c.reason, c.ordered, c.lanes, c.start, c.owner, c.attempts, c.created_at,
       (select array_agg(t.type order by t.type) from outlast._consumer_type t where t.consumer = c.id) as types,
       greatest(0, coalesce(pg_sequence_last_value('outlast._event_id'), 0) - (
         select min(p.hi) from outlast._places(c.id) p))
         as ids_behind,
       (select count(*) from outlast._lease l where l.consumer = c.id and l.room = 'batch') as batches,
       (select coalesce(sum(b.events), 0) from outlast._lease l
          join outlast._batch b on (b.consumer, b.lane, b.seq) = (l.consumer, l.lane, l.seq)
        where l.consumer = c.id and l.room = 'batch') as in_flight,
       (select count(*) from outlast._parked p where p.consumer = c.id and p.state = 'retry') as retrying,
       (select count(*) from outlast._parked p where p.consumer = c.id and p.state = 'quarantined') as quarantined,
       (select count(*) from outlast._parked p where p.consumer = c.id and p.state = 'waiting-version') as waiting_version,
       (select min(p.parked_at) from outlast._parked p where p.consumer = c.id) as oldest_parked_at
from outlast._consumer c;
