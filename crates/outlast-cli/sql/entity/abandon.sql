-- $1 the entity, $2 why, $3 who asks. Answers `abandoned`, or how it stands instead.
select outlast.abandon_entity(e.name, e.entity_id, $2, e.tenant, $3) as said
from outlast._entity e
where e.id = $1
