-- Which types there are among the newest events of the log: at most 1,000 of each leaf are looked at, along its key.
select distinct e.type
from generate_series(0, 15) s (slot)
cross join lateral (
  select x.type from outlast._event x where x.slot = s.slot::smallint order by x.id desc limit 1000) e
order by e.type
