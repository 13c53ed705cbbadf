-- What each outbox of another system needs of its broker, and how it is. Where rows say the topic: those that wait in the table, and
-- what of them is parked, of which 10,000 are looked at.
select o.name,
       o.broker,
       o.topic,
       o.ordered,
       c.state,
       c.reason,
       coalesce(c.outages, 0)::bigint as outages,
       c.outage,
       coalesce(c.quarantined, 0)::bigint as quarantined,
       t.topics,
       t.problem
from outlast.outbox o
left join outlast.consumer c on c.name = o.consumer
cross join lateral (
  select coalesce(array_agg(distinct x.topic) filter (where x.topic is not null), '{}') as topics, min(x.problem) as problem
  from (
    select o.topic, null as problem where strpos(o.topic, '{') = 0
    union all
    select w.topic, w.problem from outlast._outbox_topics(o.name) w where strpos(o.topic, '{') > 0
    union all
    select outlast._outbox_topic(o.topic, p.type, p.subject), null
    from (select k.type, k.subject from outlast.parked k where k.consumer = o.consumer limit 10000) p
    where strpos(o.topic, '{') > 0 and (strpos(o.topic, '{topic}') = 0 or p.subject <> '')) x) t
order by o.name
