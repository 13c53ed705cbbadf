-- $1 the entity, $2 who asks. Answers `ready`, `blocked` while another has its key of exclusion, or how it stands instead.
select case when exists (select from outlast._exclusive x where x.id = e.id and x.blocked) then 'blocked'
            else outlast.retry_entity(e.name, e.entity_id, e.tenant, $2) end as said
from outlast._entity e
where e.id = $1
