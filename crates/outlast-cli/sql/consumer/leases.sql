-- Who works for one consumer. $1 its name.
select room,
       coalesce(holder, process::text, '') as holder,
       reclaims,
       lapsed,
       extract(epoch from expires_at - outlast.clock())::bigint as seconds_left,
       event_id
from outlast.lease
where consumer = $1
order by room, expires_at
