-- What a consumer has not done, and what it keeps in the log. $1 its name.
select u.waiting, u.more, u.in_flight, u.retrying, u.behind, u.waiting_version, u.quarantined, u.ids, u.bytes
from (select (outlast._named($1)).id) c
cross join lateral outlast._unfinished(c.id) u
