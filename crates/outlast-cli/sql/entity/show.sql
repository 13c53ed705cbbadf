-- One entity with what is kept of it, and what stands in its way. $1 its id; or $2 its name, $3 its key, $4 its tenant. No row: nothing is
-- known of it. Without an id: only marks that nobody has taken yet.
with which as materialized (
  select e.name, e.entity_id, e.tenant from outlast._entity e where e.id = $1
  union all
  select $2, $3, $4 where $1::uuid is null
)
select s.id, w.name, w.tenant, w.entity_id as key, s.state, t.class, s.reason, s.attempt,
       to_char(coalesce(case when e.converged_at is null then j.accepted_at end, s.marked_at) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as accepted_at,
       to_char(s.marked_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as marked_at,
       extract(epoch from s.due_at - outlast.clock())::bigint as due_in_seconds,
       to_char(s.converged_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as converged_at,
       to_char(s.incident_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as incident_at,
       coalesce(e.gone, false) as gone, coalesce(e.again, false) as again, e.refs is not null as has_refs, s.unfolded::bigint as unfolded,
       s.tombstones::bigint as tombstones,
       (select count(*) from outlast._late_refs l where l.entity = s.id) as late_refs,
       coalesce(x.blocked, false) as blocked,
       coalesce(e.fence, 0) as fence, e.refs, e.refs_codec_key,
       e.exclusive, h.id as held_by, g.kind::text as held_by_kind, p.reason as paused,
       coalesce(j.schema_version::int, 1) as version, j.actor, j.correlation_id, j.causation_id, j.traceparent,
       j.content_type, j.codec_key, j.payload
from which w
cross join lateral outlast.entity_status(w.name, w.entity_id, w.tenant) s
left join outlast._entity e on e.id = s.id
left join outlast._job j on j.id = s.id
left join lateral outlast._job_status(s.id) t on s.id is not null
left join outlast._exclusive x on x.id = s.id
left join outlast._exclusive h on h.tenant = x.tenant and h.key = x.key and h.held and h.id <> s.id
left join outlast._job g on g.id = h.id
left join outlast._job_pause p on p.name = outlast._queue('e', w.name)
