-- $1 the entity, $2 why, $3 who asks. Answers `forgotten`, `running` while a runner has it, or `nothing` where nothing was kept.
select outlast.forget_refs(e.name, e.entity_id, $2, e.tenant, $3) as said
from outlast._entity e
where e.id = $1
