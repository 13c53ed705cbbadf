-- Waking workers that sleep, for users of the setting wake = notify.

-- A reader that sleeps holds this lock exclusively. It is inverted: who holds it is *not* looking. With a lock held while
-- awake every emit notified as long as no engine ran, and under load its taker lost against the emits.
create or replace function outlast._wake_lock() returns bigint
language sql immutable parallel safe
as $$ select outlast._lock_room(7311) $$;

-- Gives emit the text that the settings choose. A look at the setting's row takes 2.6 µs, 9 % of an emit; a parameter of
-- the database takes 0.1 µs, but old sessions, and those of a pooler, would not hear of a change; this takes nothing.
-- Run by `migrate` and `apply`, which operators call; never by a worker.
create or replace function outlast._choose() returns void
language plpgsql volatile
as $choose$
begin
  if outlast._setting('wake') = 'notify' then
    -- Either nobody sleeps: then the shared lock keeps everybody from falling asleep before this transaction has ended,
    -- and the look before that sleep sees it. Or somebody does, and is woken by its commit.
    create or replace function outlast._woken() returns boolean
    language plpgsql volatile
    as $$
    begin
      if not pg_try_advisory_xact_lock_shared(outlast._wake_lock()) then
        perform pg_notify('outlast_wake', '');
      end if;
      return true;
    end $$;
  else
    create or replace function outlast._woken() returns boolean
    language sql immutable parallel safe
    as $$ select true $$;
  end if;
end $choose$;
select outlast._choose();

-- Can an event above this id be seen by now? Asked by a look that finds ids drawn and transactions open. In the leaves of
-- now, with an hour on both sides: whoever draws an id now does not write it elsewhere.
create or replace function outlast._visible_above(last bigint) returns boolean
language plpgsql stable
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  s smallint;
  at timestamptz := outlast.clock();
begin
  foreach s in array outlast._log_slots(at, at) loop
    if exists (select from outlast._event e where e.slot = s and e.id > _visible_above.last) then return true; end if;
  end loop;
  return false;
end $$;

-- The elected poller goes: another may be elected at once.
create or replace function outlast._resign(token uuid) returns void
language plpgsql volatile
as $$
begin
  delete from outlast._lease l where l.token = _resign.token and l.room = 'poller';
  perform pg_notify('outlast_wake', 'resigned');
end $$;
