-- Consumers and what is unfinished for each. $1 a name, or null for all.
select name,
       state,
       reason,
       owner,
       types,
       ordered,
       lanes,
       start,
       attempts,
       coalesce(ids_behind, 0) as ids_behind,
       in_flight::bigint as in_flight,
       batches,
       retrying,
       quarantined,
       waiting_version,
       blocked_keys,
       behind,
       outages,
       outage,
       extract(epoch from outlast.clock() - oldest_parked_at)::bigint as oldest_parked_seconds,
       to_char(created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as created_at
from outlast.consumer
where $1::text is null or name = $1
order by name
