-- The newest commands, newest first. Of any state: backwards along the primary key, whose ids begin with the time, so that the
-- limit or the time ends the scan. Of one state: from the rows that make it, which are few while it has not ended.
-- $1 name, $2 tenant, $3 key, $4 account: null is any. $5 accepted since: a time, or $6 a span before now; $7 and $8 the same,
-- accepted before. $9 the state (stopped: waits for a person; contradicted: told another end after its end). $10 how many.
with bounds as materialized (
  select coalesce($5::text::timestamptz, outlast.clock() - $6::text::interval) as since,
         coalesce($7::text::timestamptz, outlast.clock() - $8::text::interval, 'infinity') as before
), lowest as materialized (
  select coalesce(
    (rpad(lpad(to_hex((extract(epoch from since) * 1000)::bigint), 12, '0'), 32, '0'))::uuid, '00000000-0000-0000-0000-000000000000') as id
  from bounds
), of_any as (
  select j.id
  from outlast._job j
  where $9::text is null
    and j.kind = 'c'
    and j.id >= (select id from lowest)
    and j.accepted_at < (select before from bounds)
    and ($1::text is null or j.name = $1)
    and ($2::text is null or j.tenant = $2)
    and ($3::text is null or j.key = $3)
    and ($4::text is null or j.account = $4)
  order by j.id desc
  limit $10
), those (id) as (
  select x.id from of_any x
  union
  select x.id from outlast._job_claimed x where $9::text in ('waiting', 'running', 'pending', 'unknown')
  union
  select x.id from outlast._job_ready x where $9::text in ('waiting', 'running', 'pending', 'unknown')
  union
  select x.id from outlast._job_later x where $9::text in ('waiting', 'running', 'pending', 'unknown')
  union
  select x.id from outlast._exclusive x where $9::text in ('waiting', 'running', 'pending', 'unknown') and x.blocked
  union
  select x.id from outlast._job_state x where $9::text in ('waiting', 'pending', 'unknown', 'stopped') and x.incident_at is not null
  union
  select x.command from outlast._contradiction x where $9::text = 'contradicted'
  union
  select x.id from outlast._job_end x
  where x.state::text = case $9::text when 'settled' then 't' when 'rejected' then 'r' when 'obsolete' then 'o'
                                      when 'cancelled' then 'x' when 'abandoned' then 'a' end
), newest as (
  select j.*, m.state as stands, m.next, m.sent, m.unknown_at, m.reference
  from those t
  join outlast._job j on j.id = t.id
  join outlast._command m on m.id = j.id
  where j.id >= (select id from lowest)
    and j.accepted_at < (select before from bounds)
    and ($9::text is null or $9::text in ('stopped', 'contradicted') or m.state = $9::text)
    and ($1::text is null or j.name = $1)
    and ($2::text is null or j.tenant = $2)
    and ($3::text is null or j.key = $3)
    and ($4::text is null or j.account = $4)
  order by j.id desc
  limit $10
)
select j.id, j.name, j.tenant, j.key, j.account, j.stands as state, s.class, s.reason, s.attempt, j.priority::int as priority,
       case j.next when 's' then 'send' when 'l' then 'look up' else 'poll' end as next,
       j.sent, j.reference,
       to_char(j.accepted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as accepted_at,
       extract(epoch from s.due_at - outlast.clock())::bigint as due_in_seconds,
       extract(epoch from outlast.clock() - j.unknown_at)::bigint as unknown_for_seconds,
       to_char(s.ended_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as ended_at,
       to_char(s.incident_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as incident_at,
       to_char(c.at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as contradicted_at,
       exists (select from outlast._exclusive e where e.id = j.id and e.blocked) as blocked
from newest j
cross join lateral outlast._job_status(j.id) s
left join outlast._contradiction c on c.command = j.id
order by j.id desc
