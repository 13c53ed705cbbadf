-- Whether an event of this id is in the log, or a job was accepted, for whoever emitted it and whose COMMIT was not answered. He knows the id; it
-- tells nothing else, so that a login that may only emit can ask it.
create or replace function outlast._emitted(id uuid) returns boolean
language plpgsql stable
as $$
begin
  return exists (select from outlast._event e where e.event_id = _emitted.id) or exists (select from outlast._job j where j.id = _emitted.id);
end $$;
