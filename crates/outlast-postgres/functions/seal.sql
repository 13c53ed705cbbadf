-- The seal of a handler's transaction where COMMIT follows it in the same message, so that nothing comes between the two.

-- Completes one event of a batch. What nearly always holds is asked in as few statements as can be, because their number
-- is what an event costs here: READ COMMITTED, a lease of ours, nothing parked. Everything else, and every refusal with
-- its reason, is left to complete(). Refuses a transaction that the handler has ended by itself: the mark of its begin is gone, and a seal would commit alone.
create or replace function outlast._seal_last(token uuid, id uuid) returns void
language plpgsql volatile
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  locked text;
begin
  if current_setting('outlast.begun', true) is distinct from 'yes' then
    raise exception 'without the transaction that was begun' using errcode = 'OL005';
  end if;
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if current_setting('transaction_isolation') = 'read committed' then
    -- As in _prove: the lock, then a read in the next statement. Assigned, because `perform` is a statement.
    locked := pg_advisory_xact_lock_shared(outlast._lease_lock(token))::text;
    -- `seq` is of batches only. By `room` the planner would walk all batches along _lease_batch.
    insert into outlast._processed_event (event_id, at, consumer, slot, outcome)
    select _seal_last.id, outlast.clock(), x.consumer, outlast._inbox_slot(_seal_last.id), 'd'
    from outlast._lease x
    where x.token = _seal_last.token and x.seq is not null
      and not exists (select from outlast._parked p where p.consumer = x.consumer and p.event_id = _seal_last.id);
    if found then return; end if;
  end if;
  perform outlast.complete(token, id);
end $$;

-- Was this event sealed under this lease? Waits until every open seal under it has ended, so it answers whoever got no
-- answer to a seal and its COMMIT, and no transaction id by which to ask. What comes to the server only after this is
-- refused, if the event is sealed by then.
create or replace function outlast._settled(token uuid, id uuid) returns boolean
language plpgsql volatile
set lock_timeout = '8s'
as $$
declare
  l outlast._lease := outlast._take(_settled.token);
begin
  perform outlast._check_isolation();
  if l.token is null then
    raise exception 'lease % is lost: somebody newer owns its work', _settled.token using errcode = 'OL001';
  end if;
  if l.room = 'job' then
    return exists (select from outlast._job_end e where e.id = _settled.id);
  end if;
  return exists (select from outlast._sealed(l.consumer, array[_settled.id]));
end $$;
