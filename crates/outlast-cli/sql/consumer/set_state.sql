-- Pauses consumers, or lets them go on. $1 names, $2 the reason; null resumes.
select case when $2::text is null then outlast.resume(c.name)::text else outlast.pause(c.name, $2)::text end
from unnest($1::text[]) c (name)
