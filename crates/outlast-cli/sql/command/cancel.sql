-- $1 the command, of whichever tenant, $2 why, $3 who asks. Answers what became of it; no row: there is none.
select outlast.cancel(j.id, $2, j.tenant, $3) as said
from outlast._job j
where j.id = $1 and j.kind = 'c'
