-- Provider accounts that are bounded, paused or failing, and how much of each is in work. $1 one of them; null: all.
select a.name,
       case when a.paused_until = 'infinity' then 'paused'
            when a.failures >= a.circuit then 'failing'
            when a.paused_until is not null then 'throttled'
            else 'open' end as state,
       case when a.paused_until < 'infinity' then extract(epoch from a.paused_until - outlast.clock())::bigint end as paused_seconds,
       a.failures, a.reason, a.actor, a.concurrency, a.rate, a.burst, a.circuit, a.circuit_pause_s,
       to_char(a.since at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as since,
       (select count(*) from outlast._job_claimed c where c.account = a.name and c.account <> '') as running
from outlast.account a
where $1::text is null or a.name = $1
order by a.name
