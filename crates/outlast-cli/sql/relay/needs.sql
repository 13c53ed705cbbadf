-- What each route needs of its broker, and how it is. $1 names of routes, or null for all.
select r.name,
       r.broker,
       r.topic,
       r.types,
       r.ordered,
       r.start,
       (r.limits ->> 'message_bytes')::bigint as message_bytes,
       c.state,
       c.reason,
       coalesce(c.outages, 0)::bigint as outages,
       c.outage,
       coalesce(c.quarantined, 0)::bigint as quarantined,
       coalesce(c.ids_behind, 0)::bigint as ids_behind,
       extract(epoch from outlast.clock() - c.moved_at)::bigint as moved_seconds_ago,
       c.lanes,
       c.lanes_wanted
from outlast.route r
left join outlast.consumer c on c.name = r.consumer
where $1::text[] is null or r.name = any ($1)
order by r.name
