-- What needs a person, oldest first. $1 a consumer, or null for all. $2 how many.
select kind,
       consumer,
       owner,
       about,
       type,
       tenant,
       key,
       class,
       failures,
       reason,
       signature,
       version,
       count,
       to_char(opened_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as opened_at
from outlast.incident
where $1::text is null or consumer = $1
order by outlast.incident.opened_at, about
limit $2
