-- The newest lines of the audit, newest first: along its primary key, so that the limit ends the scan.
-- $1 action, $2 about: null is any. $3 a time or $4 a span before now: null is all. $5 how many.
select a.id,
       to_char(a.at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at,
       a.actor,
       a.action,
       a.about,
       a.detail::text as detail
from outlast._audit a
where ($1::text is null or a.action = $1)
  and ($2::text is null or a.about = $2)
  and a.at >= coalesce($3::text::timestamptz, outlast.clock() - $4::text::interval, '-infinity')
order by a.id desc
limit $5
