-- One command with its payload, its answer, and what stands in its way. $1 its id.
select j.id, j.name, j.tenant, j.key, j.account, m.state, s.class, s.reason, s.attempt, j.priority::int as priority,
       case m.next when 's' then 'send' when 'l' then 'look up' else 'poll' end as next,
       m.sent, m.reference,
       to_char(j.accepted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as accepted_at,
       extract(epoch from s.due_at - outlast.clock())::bigint as due_in_seconds,
       extract(epoch from outlast.clock() - m.unknown_at)::bigint as unknown_for_seconds,
       to_char(s.ended_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as ended_at,
       to_char(s.incident_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as incident_at,
       to_char(c.at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as contradicted_at,
       coalesce(e.blocked, false) as blocked,
       m.provider_key, m.version as moves,
       to_char(m.first_sent_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as first_sent_at,
       to_char(m.pending_until at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as pending_until,
       m.ambiguous, m.supersedes, m.answer,
       x.cancel, x.cancel_by, p.reason as paused,
       e.key as exclusive, (select h.id from outlast._exclusive h where h.tenant = e.tenant and h.key = e.key and h.held and h.id <> j.id) as held_by,
       c.state as contradicted_as, c.reason as contradicted_reason,
       case when a.name is not null then coalesce(a.reason, '') end as account_paused,
       case when a.paused_until < 'infinity' then extract(epoch from a.paused_until - outlast.clock())::bigint end as account_paused_seconds,
       j.schema_version::int as version, j.attempts::int as attempts, j.source, j.actor, j.correlation_id, j.causation_id,
       j.traceparent, j.codec_key, j.payload
from outlast._job j
join outlast._command m on m.id = j.id
cross join lateral outlast._job_status(j.id) s
left join outlast._job_state x on x.id = j.id
left join outlast._contradiction c on c.command = j.id
left join outlast._exclusive e on e.id = j.id
left join outlast._job_pause p on p.name = outlast._queue(j.kind, j.name)
left join outlast._account a on a.name = j.account and j.account <> '' and a.paused_until > outlast.clock()
where j.id = $1 and j.kind = 'c'
