-- Gives a quarantined event another full budget of tries, at once. $1 the consumer's name, $2 the event.
-- from: quarantined, to: retry. The runner looks in the inbox first, so what was completed meanwhile is not run again.
update outlast._parked p
set state = 'retry', failures = 0, crashes = 0, next_at = outlast.clock(), changed_at = outlast.clock()
from outlast._consumer c
where c.id = p.consumer and c.name = $1 and p.event_id = $2 and p.state = 'quarantined' and p.token is null
returning p.state
