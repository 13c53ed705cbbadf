-- What consumers could not complete yet. $1 a consumer, $2 a state: null is any. $3 how many.
select consumer,
       id,
       type,
       tenant,
       key,
       state,
       class,
       failures,
       running,
       behind,
       waits_for,
       reason,
       extract(epoch from next_at - outlast.clock())::bigint as due_in_seconds,
       to_char(parked_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as parked_at
from outlast.parked
where ($1::text is null or consumer = $1)
  and ($2::text is null or state = $2)
order by parked_at desc
limit $3
