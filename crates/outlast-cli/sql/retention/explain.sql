-- The leaves of both rings and what holds each. $1 a ring, $2 a slot; null: all that hold something.
select s.ring, s.slot, s.bytes,
       to_char(s.first_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as first_at,
       to_char(s.last_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as last_at,
       h.kind, h.about, h.detail
from outlast._slots() s
left join lateral outlast._holds(s.ring, s.slot) h on true
where ($1::text is null or s.ring = $1) and ($2::int2 is null or s.slot = $2) and (h.kind is not null or $2 is not null)
order by s.ring desc, s.last_at, s.slot, h.kind, h.about, h.detail
