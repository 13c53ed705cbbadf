-- Messages that are no event, oldest first. $1 a consumer, or null for all; $2 how many at most.
select consumer, id, why, seen, broker_id, broker, topic,
       to_char(first_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as first_at,
       to_char(last_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as last_at
from outlast.unreadable
where $1::text is null or consumer = $1
order by first_at, id
limit $2
