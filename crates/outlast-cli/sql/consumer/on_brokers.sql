-- Consumers that read a broker: what, and how they are. $1 a name, or null for all.
select name,
       broker,
       topic,
       subscription,
       ordered,
       ack_ms,
       state,
       reason,
       outages,
       outage,
       quarantined,
       unreadable
from outlast.consumer
where broker is not null and broker <> 'outbox' and state <> 'retired' and ($1::text is null or name = $1)
order by name
