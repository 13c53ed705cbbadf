-- What happened to a command, in order. $1 its id.
select to_char(e.at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, e.what, e.result, e.state, e.moved, e.reference,
       e.reason, encode(e.digest, 'hex') as digest, e.actor
from outlast._evidence e
where e.command = $1
order by e.id
