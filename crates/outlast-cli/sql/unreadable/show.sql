-- One message as it came, for each consumer that got it. $1 its id, $2 a consumer, or null for all.
select c.name as consumer, u.why, u.seen, u.broker_id, c.broker, c.topic, u.attributes, u.payload,
       to_char(u.first_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as first_at,
       to_char(u.last_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as last_at
from outlast._unreadable u
join outlast._consumer c on c.id = u.consumer
where u.id = $1 and ($2::text is null or c.name = $2)
order by c.name
