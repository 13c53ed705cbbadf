-- $1 the command, $2 as what, $3 why, $4 the provider's reference, $5 its answer, $6 who has decided. Answers the state before and
-- after it, and whether it waited for a person: else nothing was changed. No row: there is none.
with before as materialized (
  select m.id, m.state,
         case when $2::text = 'noted' then exists (select from outlast._contradiction c where c.command = m.id)
              else exists (select from outlast._job_state s where s.id = m.id and s.incident_at is not null) end as waits
  from outlast._command m
  where m.id = $1
)
select b.state as was, b.waits, outlast.resolve(b.id, $2, $3, $4, $5, $6) as said
from before b
