-- The oldest of a consumer. $1 its name, $2 how many at most.
select u.id
from outlast._unreadable u
where u.consumer = (outlast._named($1)).id
order by u.first_at, u.id
limit $2
