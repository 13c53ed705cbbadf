-- What each outbox of another system needs of its broker, and how it is.
select o.name,
       o.broker,
       o.topic,
       o.ordered,
       c.state,
       c.reason,
       coalesce(c.outages, 0)::bigint as outages,
       c.outage,
       coalesce(c.quarantined, 0)::bigint as quarantined
from outlast.outbox o
left join outlast.consumer c on c.name = o.consumer
order by o.name
