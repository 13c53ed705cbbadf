-- What is due and that no worker takes: of each name under which work is claimed, and of which nothing is in work, one that has waited for
-- more than a minute, since when, and why its name is paused. What an account may not do now has a reason of its own, and is left out;
-- so is what waits for a person, or for another's end. Of entities also marks that nobody has taken.
with recursive moment as materialized (
  select outlast.clock() as at
), name_ready (name) as (
  (select x.name from outlast._job_ready x order by x.name limit 1)
  union all
  select (select x.name from outlast._job_ready x where x.name > r.name order by x.name limit 1) from name_ready r where r.name is not null
), in_work as materialized (
  select distinct outlast._queue(j.kind, j.name) as name
  from outlast._job_claimed c
  join outlast._lease l on l.token = c.token and l.expires_at > (select at from moment)
  join outlast._job j on j.id = c.id
), waits (name, head, since) as (
  select r.name, o.id::text, o.accepted_at
  from name_ready r
  cross join lateral (
    select x.id, j.accepted_at
    from (select y.* from outlast._job_ready y where y.name = r.name order by y.account, y.tenant, y.priority, y.seq limit 100) x
    join outlast._job j on j.id = x.id
    where not exists (select from outlast._account a where a.name = x.account and x.account <> '')
      and not exists (select from outlast._account_limit a where a.name = x.account)
    order by j.accepted_at, x.id
    limit 1) o
  where r.name is not null
  union all
  select l.name, l.id::text, l.due_at
  from (select x.* from outlast._job_later x
        where not x.alone and x.due_at < (select at from moment) order by x.due_at limit 1000) l
  union all
  select outlast._queue('e', m.name), m.id::text, m.marked_at
  from (select x.* from outlast._entity_mark x order by x.id limit 1000) m
)
select distinct on (w.name) w.name, w.head, extract(epoch from (select at from moment) - w.since)::bigint as seconds, p.reason as paused
from waits w
left join outlast._job_pause p on p.name = w.name
where w.since < (select at from moment) - interval '1 minute'
  and not exists (select from in_work i where i.name = w.name)
order by w.name, w.since, w.head
