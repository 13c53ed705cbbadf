-- Names with something to do (a command's with `command:` before it), each looked for behind the one before; and those that are paused.
with recursive ready (name) as (
  (select x.name from outlast._job_ready x order by x.name limit 1)
  union all
  select (select x.name from outlast._job_ready x where x.name > r.name order by x.name limit 1) from ready r where r.name is not null
)
select coalesce(r.name, p.name) as name, r.name is not null as waits, p.reason as paused
from (select name from ready where name is not null) r
full join outlast._job_pause p on p.name = r.name
order by 1
