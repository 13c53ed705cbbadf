-- How the cluster settings limit each other. Nothing is deleted while they contradict each other.

-- All problems of these settings at once, a sentence each; none: they fit. A name that is absent counts as it is in force,
-- null as its standard. `outlast apply` asks with what it is about to write, maintenance with nothing.
create or replace function outlast._check_settings(settings jsonb default '{}') returns setof text
language plpgsql stable
as $$
#variable_conflict use_column
declare
  d record;
  given text;
  of jsonb := '{}';                              -- setting -> seconds
  log numeric;
  inbox numeric;
  day constant numeric := 86400;
begin
  return query
    select format('%s is no setting', k) from jsonb_object_keys(_check_settings.settings) k
    where not exists (select from outlast._settings() x where x.name = k) order by k;
  for d in select * from outlast._settings() loop
    given := case when not _check_settings.settings ? d.name then outlast._setting(d.name)
                  else coalesce(_check_settings.settings ->> d.name, d.standard) end;
    if d.kind <> 'duration' then
      if given <> all (string_to_array(d.kind, '|')) then
        return next format('%s = %s is not one of %s', d.name, given, replace(d.kind, '|', ', '));
      end if;
      continue;
    end if;
    if given !~ '^[0-9]{1,9}(ms|s|m|h|d)( [0-9]{1,9}(ms|s|m|h|d))*$' then
      return next format('%s = %s is not a duration such as 90s, 10m, 12h, 3d', d.name, given);
      continue;
    end if;
    of := of || jsonb_build_object(d.name, extract(epoch from given::interval));
  end loop;

  log := (of ->> 'retention.log')::numeric;
  inbox := (of ->> 'retention.inbox')::numeric;
  -- A slot is removed an hour after all of it is old enough; with more than 14 slot lengths the ring would come round first.
  if log > 14 * outlast._log_slot_s() then
    return next format('retention.log = %s is longer than 14 slots of the log, which are 7d', outlast._days(log));
  end if;
  if inbox > 14 * outlast._inbox_slot_s() then
    return next format('retention.inbox = %s is longer than 14 slots of the inbox, which are 42d', outlast._days(inbox));
  end if;
  -- An own event id may be seven days older than its emit, and completions are found by the time in the id.
  if inbox < 7 * day + log + (of ->> 'retention.replay')::numeric then
    return next format('retention.inbox = %s is shorter than %s: 7d (how old an own event id may be) + retention.log (%s) + retention.replay (%s)',
      outlast._days(inbox), outlast._days(7 * day + log + (of ->> 'retention.replay')::numeric), outlast._days(log),
      outlast._days((of ->> 'retention.replay')::numeric));
  end if;
  if (of ->> 'retention.dedup')::numeric < 8 * day then
    return next format('retention.dedup = %s is shorter than 8d: own event ids may be 7d old and must not be taken twice',
      outlast._days((of ->> 'retention.dedup')::numeric));
  end if;
  if (of ->> 'retention.fold_after')::numeric < day then
    return next format('retention.fold_after = %s is shorter than 1d', outlast._days((of ->> 'retention.fold_after')::numeric));
  end if;
  if (of ->> 'retention.fold_after')::numeric > 14 * outlast._log_slot_s() then
    return next format('retention.fold_after = %s is longer than 14 slots of the log, which are 7d: the log keeps what is not folded',
      outlast._days((of ->> 'retention.fold_after')::numeric));
  end if;
end $$;

-- A number of seconds as a setting would say it.
create or replace function outlast._days(seconds numeric) returns text
language sql immutable parallel safe
as $$ select case when seconds % 86400 = 0 then trunc(seconds / 86400) || 'd' when seconds % 3600 = 0 then trunc(seconds / 3600) || 'h'
             when seconds % 60 = 0 then trunc(seconds / 60) || 'm' else trunc(seconds) || 's' end $$;

-- How long one leaf of a ring lasts. Fixed: with another length the same event could be sealed twice. See _log_slot, _inbox_slot.
create or replace function outlast._log_slot_s() returns int language sql immutable parallel safe as $$ select 43200 $$;
create or replace function outlast._inbox_slot_s() returns int language sql immutable parallel safe as $$ select 259200 $$;
