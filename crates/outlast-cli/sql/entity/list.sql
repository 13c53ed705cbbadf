-- Entities, those that were known last first. Of any state, or converged: backwards along the primary key, so that the limit ends the
-- scan. Of another state: from the rows that make it, which are few. Beside them what marks tell that nobody has taken yet, of the newest
-- 10,000: while no worker reconciles, there is nothing else.
-- $1 name, $2 tenant, $3 key: null is any. $4 what is not converged (else what was converged last) was marked first since: a time, or $5
-- a span before now; $6 and $7 the same, before. $8 the state (stopped: waits for a person; late-refs). $9 how many.
with bounds as materialized (
  select coalesce($4::text::timestamptz, outlast.clock() - $5::text::interval, '-infinity') as since,
         coalesce($6::text::timestamptz, outlast.clock() - $7::text::interval, 'infinity') as before
), marked as materialized (
  select m.name, m.tenant, m.entity_id, count(*) as n, min(m.marked_at) as first, max(m.marked_at) as newest
  from (select x.* from outlast._entity_mark x order by x.id desc limit 10000) m
  where ($1::text is null or m.name = $1)
    and ($2::text is null or m.tenant = $2)
    and ($3::text is null or m.entity_id = $3)
  group by m.name, m.tenant, m.entity_id
), of_any as (
  select e.id
  from outlast._entity e
  join outlast._job j on j.id = e.id
  left join marked m on m.name = e.name and m.tenant = e.tenant and m.entity_id = e.entity_id
  where ($8::text is null or $8::text = 'converged' and e.converged_at is not null and m.n is null)
    and case when e.converged_at is null then j.accepted_at else coalesce(m.first, j.accepted_at) end >= (select since from bounds)
    and case when e.converged_at is null then j.accepted_at else coalesce(m.first, j.accepted_at) end < (select before from bounds)
    and ($1::text is null or e.name = $1)
    and ($2::text is null or e.tenant = $2)
    and ($3::text is null or e.entity_id = $3)
  order by e.id desc
  limit $9
), those (id) as (
  select x.id from of_any x
  union
  select x.id from outlast._job_claimed x where $8::text = 'running'
  union
  select x.id from outlast._job_ready x where $8::text = 'waiting'
  union
  select x.id from outlast._job_later x where $8::text = 'waiting'
  union
  select x.id from outlast._exclusive x where $8::text = 'waiting' and x.blocked
  union
  select x.id from outlast._job_state x where $8::text in ('waiting', 'stopped') and x.incident_at is not null
  union
  select x.entity from outlast._late_refs x where $8::text = 'late-refs'
  union
  select e.id
  from marked m
  join outlast._entity e on e.name = m.name and e.tenant = m.tenant and e.entity_id = m.entity_id
  where $8::text = 'waiting'
), known as (
  select e.id, e.name, e.tenant, e.entity_id,
         case when s.state <> 'done' then s.state when m.n > 0 then 'waiting' else 'converged' end as state,
         s.class, s.reason, s.attempt, s.due_at, s.incident_at, case when m.n is null then e.converged_at end as converged_at,
         case when e.converged_at is null then j.accepted_at else coalesce(m.first, j.accepted_at) end as accepted_at,
         greatest(e.marked_at, m.newest) as marked_at, e.gone, e.again, e.refs is not null as has_refs, coalesce(m.n, 0) as unfolded
  from those t
  join outlast._entity e on e.id = t.id
  join outlast._job j on j.id = e.id
  left join marked m on m.name = e.name and m.tenant = e.tenant and m.entity_id = e.entity_id
  cross join lateral outlast._job_status(e.id) s
  where ($1::text is null or e.name = $1)
    and ($2::text is null or e.tenant = $2)
    and ($3::text is null or e.entity_id = $3)
  union all
  select null, m.name, m.tenant, m.entity_id, 'waiting', null, null, 0, null, null, null, m.first, m.newest, false, false, false, m.n
  from marked m
  where ($8::text is null or $8::text = 'waiting')
    and not exists (select from outlast._entity e where e.name = m.name and e.tenant = m.tenant and e.entity_id = m.entity_id)
)
select k.id, k.name, k.tenant, k.entity_id as key, k.state, k.class, k.reason, k.attempt,
       to_char(k.accepted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as accepted_at,
       to_char(k.marked_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as marked_at,
       extract(epoch from k.due_at - outlast.clock())::bigint as due_in_seconds,
       to_char(k.converged_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as converged_at,
       to_char(k.incident_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as incident_at,
       k.gone, k.again, k.has_refs, k.unfolded,
       (select count(*) from outlast._tombstone t where t.entity = k.id) as tombstones,
       (select count(*) from outlast._late_refs l where l.entity = k.id) as late_refs,
       exists (select from outlast._exclusive e where e.id = k.id and e.blocked) as blocked
from known k
where ($8::text is null or $8::text in ('stopped', 'late-refs') or k.state = $8::text)
  and k.accepted_at >= (select since from bounds)
  and k.accepted_at < (select before from bounds)
order by k.id desc nulls first, k.accepted_at desc
limit $9
