-- Endpoints outside: what of theirs has ended.

-- Of events that an endpoint has accepted, side by side with the tokens that they run under: those that are not open any
-- more. Sealed first: sealed and parked may have committed side by side, and then it is done.
create or replace function outlast._accepted(consumer int, tokens uuid[], ids uuid[])
returns table (token uuid, id uuid, state text)
language plpgsql stable
set jit = off
as $$
#variable_conflict use_column
declare
  done uuid[] := array(select * from outlast._sealed(_accepted.consumer, _accepted.ids));
begin
  return query
    select w.token, w.id,
           case when w.id = any (done) then 'sealed'
                when p.event_id is not null then 'failed'
                else 'lost' end
    from unnest(_accepted.tokens, _accepted.ids) w (token, id)
    left join outlast._lease l on l.token = w.token
    left join outlast._parked p
      on p.consumer = _accepted.consumer and p.event_id = w.id and p.token is distinct from w.token
    where w.id = any (done) or p.event_id is not null or l.token is null;
end $$;
