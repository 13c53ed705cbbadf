-- One event with its whole envelope and its exact bytes. $1 its id.
select id,
       type,
       version::int as version,
       tenant,
       key,
       subject,
       source,
       actor,
       aggregate_version,
       correlation_id,
       causation_id,
       traceparent,
       headers::text as headers,
       content_type,
       payload,
       codec_key,
       to_char(emitted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as emitted_at,
       log_id
from outlast.event
where id = $1
