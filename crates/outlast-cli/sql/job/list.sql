-- The newest jobs, newest first: backwards along the primary key, whose ids begin with the time, so that the limit or the time
-- ends the scan. $1 name, $2 tenant, $3 key: null is any. $4 a time or $5 a span before now: null is all. $6 how many.
with since as materialized (
  select coalesce($4::text::timestamptz, outlast.clock() - $5::text::interval) as at
), lowest as materialized (
  select coalesce(
    (rpad(lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0'), 32, '0'))::uuid, '00000000-0000-0000-0000-000000000000') as id
  from since
), newest as (
  select j.*
  from outlast._job j
  where j.kind = 'j'
    and j.id >= (select id from lowest)
    and ($1::text is null or j.name = $1)
    and ($2::text is null or j.tenant = $2)
    and ($3::text is null or j.key = $3)
  order by j.id desc
  limit $6
)
select j.id, j.name, j.tenant, j.key, s.state, s.class, s.reason, s.attempt, j.priority::int as priority,
       to_char(j.accepted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as accepted_at,
       extract(epoch from s.due_at - outlast.clock())::bigint as due_in_seconds,
       to_char(s.ended_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as ended_at,
       to_char(s.incident_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as incident_at
from newest j
cross join lateral outlast._job_status(j.id) s
order by j.id desc
