-- Routes and how far each is. $1 a route, or null for all.
select r.name,
       r.broker,
       r.topic,
       r.types,
       r.ordered,
       coalesce(c.state, 'not served yet') as state,
       c.reason,
       coalesce(c.ids_behind, 0) as ids_behind,
       coalesce(c.in_flight, 0)::bigint as in_flight,
       coalesce(c.retrying, 0)::bigint as retrying,
       coalesce(c.behind, 0)::bigint as behind,
       coalesce(c.quarantined, 0)::bigint as quarantined,
       coalesce(c.outages, 0)::bigint as outages,
       c.outage,
       c.lanes,
       c.lanes_wanted,
       w.round as rewind,
       w.sent as rewind_sent,
       w.refused as rewind_refused,
       w.events as rewind_events
from outlast.route r
left join outlast.consumer c on c.name = r.consumer
left join outlast.rewind w on w.route = r.name and w.state = 'running'
where $1::text is null or r.name = $1
order by r.name
