-- Who stands in the way of one session. $1 its process id.
select a.pid,
       coalesce(nullif(a.application_name, ''), a.backend_type, '') as name,
       coalesce(a.usename::text, '') as role,
       coalesce(a.state, '') as state,
       coalesce(extract(epoch from clock_timestamp() - coalesce(a.xact_start, a.backend_start)), 0)::bigint as seconds
from unnest(pg_blocking_pids($1)) b (pid)
join pg_stat_activity a on a.pid = b.pid
order by seconds desc
limit 3
