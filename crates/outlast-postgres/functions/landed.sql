-- Whether an event of this id is in the log, for whoever emitted it and whose COMMIT was not answered. He knows the id; it
-- tells nothing else, so that a login that may only emit can ask it.
create or replace function outlast._emitted(id uuid) returns boolean
language plpgsql stable
as $$
begin
  return exists (select from outlast._event e where e.event_id = _emitted.id);
end $$;
