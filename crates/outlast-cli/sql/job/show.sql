-- One job with its payload. $1 its id.
select j.id, j.name, j.tenant, j.key, s.state, s.class, s.reason, s.attempt, j.priority::int as priority,
       to_char(j.accepted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as accepted_at,
       extract(epoch from s.due_at - outlast.clock())::bigint as due_in_seconds,
       to_char(s.ended_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as ended_at,
       to_char(s.incident_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as incident_at,
       j.schema_version::int as version, j.attempts::int as attempts, j.source, j.actor, j.correlation_id, j.causation_id,
       j.traceparent, j.content_type, j.codec_key, j.payload, p.reason as paused
from outlast._job j
cross join lateral outlast._job_status(j.id) s
left join outlast._job_pause p on p.name = j.name
where j.id = $1 and j.kind = 'j'
