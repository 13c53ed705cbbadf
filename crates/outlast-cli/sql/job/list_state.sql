-- The newest jobs in a state, from the rows that make it: what has not ended is in narrow tables, so that millions that have
-- are not looked at. $1 name, $2 tenant, $3 key: null is any. $4 a time or $5 a span before now: null is all. $6 how many.
-- $7 the state; stopped: waits for a person.
with since as materialized (
  select coalesce($4::text::timestamptz, outlast.clock() - $5::text::interval, '-infinity') as at
), those (id) as (
  select x.id from outlast._job_claimed x where $7::text = 'running'
  union all
  select x.id from outlast._job_ready x where $7::text = 'waiting' and ($1::text is null or x.name = $1)
  union all
  select x.id from outlast._job_later x where $7::text = 'waiting' and ($1::text is null or x.name = $1)
  union all
  select x.id from outlast._job_state x where $7::text in ('waiting', 'stopped') and x.incident_at is not null
  union all
  select x.id from outlast._job_end x
  where x.state::text = case $7::text when 'done' then 'd' when 'skipped' then 's' when 'cancelled' then 'x' when 'abandoned' then 'a' end
), newest as (
  select j.*
  from those t
  join outlast._job j on j.id = t.id
  where j.kind = 'j'
    and j.accepted_at >= (select at from since)
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
