-- What a rewind of route $1 would publish: from $2 (or $3 before now) until $4 (or $5 before now, or now).
select events, bytes,
       to_char(first at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as first,
       to_char(last at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as last
from outlast.rewind_size($1, coalesce($2::text::timestamptz, outlast.clock() - $3::text::interval),
                             coalesce($4::text::timestamptz, outlast.clock() - $5::text::interval))
