-- Which entity is meant. $1 its id; or $2 its name, $3 its key, $4 its tenant. No row: nothing is known of it. Without an id: only
-- marks that nobody has taken yet, of the newest 10,000.
select e.id
from outlast._entity e
where e.id = $1 or ($1::uuid is null and e.name = $2 and e.entity_id = $3 and e.tenant = $4)
union all
(select null
 from (select x.* from outlast._entity_mark x order by x.id desc limit 10000) m
 where $1::uuid is null and m.name = $2 and m.entity_id = $3 and m.tenant = $4
   and not exists (select from outlast._entity e where e.name = $2 and e.entity_id = $3 and e.tenant = $4)
 limit 1)
