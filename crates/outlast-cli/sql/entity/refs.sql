-- What is to be cleaned up of an entity, then what late runners had made of it, each oldest first. $1 its id.
select 'deleted' as what, to_char(t.deleted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, t.refs, t.codec_key, t.actor, t.id
from outlast._tombstone t
where t.entity = $1
union all
select 'late', to_char(l.at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), l.refs, l.codec_key, null, l.id
from outlast._late_refs l
where l.entity = $1
order by 1, 6
