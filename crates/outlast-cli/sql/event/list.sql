-- The newest events, newest first. Each leaf is read backwards along its primary key (slot, id), so that the limit ends
-- the scan, however long the log is; by key along _event_key.
-- $1 type, $2 tenant, $3 key: null is any. $4 a time or $5 a span before now: null is all. $6 how many.
with since as materialized (
  select coalesce($4::text::timestamptz, outlast.clock() - $5::text::interval, '-infinity') as at
)
select e.event_id as id,
       e.type,
       e.schema_version::int as version,
       e.tenant,
       e.key,
       to_char(e.emitted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as emitted_at,
       e.content_type,
       octet_length(e.payload) as bytes,
       e.id as log_id
from generate_series(0, 15) leaf
cross join lateral (
  select *
  from outlast._event x
  where x.slot = leaf::smallint
    and ($1::text is null or x.type = $1)
    and ($2::text is null or x.tenant = $2)
    and ($3::text is null or x.key = $3)
    and x.emitted_at >= (select at from since)
  order by x.id desc
  limit $6
) e
order by e.id desc
limit $6
