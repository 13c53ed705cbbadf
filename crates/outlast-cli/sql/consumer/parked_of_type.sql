-- How many parked events a consumer would skip with a type. $1 its name, $2 the type.
select count(*) as parked
from outlast._parked p
where p.consumer = (outlast._named($1)).id and outlast._loses(p.consumer, $2, p.type)
