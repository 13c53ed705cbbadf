-- $1 the entity, $2 what was found, $3 who asks. Answers `noted`, or `nothing` where there are no late refs.
select case outlast.note_refs(e.name, e.entity_id, $2, e.tenant, $3) when 0 then 'nothing' else 'noted' end as said
from outlast._entity e
where e.id = $1
