-- $1 the command, $2 who asks. Answers `ready`, `blocked` while another has its key of exclusion, or how it stands instead.
select case when m.state = 'waiting' and exists (select from outlast._exclusive e where e.id = m.id and e.blocked) then 'blocked'
            else outlast.retry_job(m.id, $2) end as said
from outlast._command m
where m.id = $1
