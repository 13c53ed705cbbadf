-- Where one event stands for each consumer of its type. $1 its id.
-- The order of the cases matters: sealed and parked may both be there for a moment, and then it is done.
select c.name as consumer,
       case
         when s.outcome = 'd' then 'done'
         when s.outcome = 's' then 'skipped'
         when outlast._bit(c.id, e.id) then 'done'
         when p.token is not null then 'running'
         when p.event_id is not null then p.state
         when exists (
           select from outlast._delivered d where d.consumer = c.id and d.event_id = e.event_id and d.token is not null
         ) then 'in flight'
         when c.broker is not null then 'waiting'     -- on its way, by the relay and the broker
         when outlast._sees((c.began).snap, (c.began).hi, (c.began).base, e.id, e.xid)
           or t.since is not null and not outlast._counts(c.id, e.type, e.id, e.xid) then 'not for it'
         when exists (
           select
           from outlast._lease l
           join outlast._batch b on (b.consumer, b.lane, b.seq) = (l.consumer, l.lane, l.seq)
           where l.room = 'batch' and l.consumer = c.id and l.lane = outlast._lane(e.key, e.id, c.lanes)
             and e.id > b.lo and e.id <= b.hi
             and outlast._sees((b.b).snap, (b.b).hi, (b.b).base, e.id, e.xid)
             and not outlast._sees((b.a).snap, (b.a).hi, (b.a).base, e.id, e.xid)
         ) then 'in flight'
         else 'waiting'
       end as state,
       coalesce(p.failures, 0) as failures,
       p.class,
       coalesce(s.reason, p.reason, case when c.state <> 'active' then c.state || ': ' || coalesce(c.reason, '') end) as reason,
       to_char(coalesce(s.at, p.next_at) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at
from outlast._event e
join outlast._consumer_type t on t.type = e.type
join outlast._consumer c on c.id = t.consumer
left join outlast._processed_event s
  on s.slot = outlast._inbox_slot(e.event_id) and s.consumer = c.id and s.event_id = e.event_id
left join outlast._parked p on p.consumer = c.id and p.event_id = e.event_id and s.event_id is null
where e.event_id = $1
order by c.name
