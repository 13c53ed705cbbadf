-- Outboxes of other systems and how far each is. $1 one of them, or null for all.
select o.name,
       o.broker,
       o.schema_name || '.' || o.table_name as "table",
       o.topic,
       o.ordered,
       coalesce(c.state, 'not served yet') as state,
       c.reason,
       b.waiting,
       coalesce(b.more, false) as more,
       greatest(0, extract(epoch from outlast.clock() - b.oldest))::bigint as oldest_seconds,
       b.problem,
       c.claims,
       coalesce(c.retrying, 0)::bigint as retrying,
       coalesce(c.behind, 0)::bigint as behind,
       coalesce(c.quarantined, 0)::bigint as quarantined,
       coalesce(c.outages, 0)::bigint as outages,
       c.outage
from outlast.outbox o
left join lateral (
  select x.*, (select count(*) from outlast.lease l where l.consumer = x.name and l.room = 'outbox') as claims
  from outlast.consumer x where x.name = o.consumer) c on true
cross join lateral outlast._outbox_backlog(o.name) b
where $1::text is null or o.name = $1
order by o.name
