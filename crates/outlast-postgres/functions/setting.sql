-- Cluster settings: the one list of their names, kinds and defaults, and how they are read. `outlast apply` writes them.

-- One setting a line: the programs read this list from the text of this file. A kind is duration, or the words that may
-- be chosen.
create or replace function outlast._settings() returns table (name text, kind text, standard text, what text)
language sql immutable parallel safe
as $$
  values
    ('parked.version_incident', 'duration', '10m', 'how long an event waits for a newer worker before a person must look'),
    ('retention.log',        'duration', '3d',  'how long events are kept after their last consumer'),
    ('retention.inbox',      'duration', '30d', 'how long completions are remembered'),
    ('retention.dedup',      'duration', '30d', 'how long a deduplication key answers; after that it is expired'),
    ('retention.job',        'duration', '30d', 'how long a job is kept after its end'),
    ('retention.job_key',    'duration', '30d', 'how long the key of a job answers, where it says no lifetime of its own'),
    ('retention.replay',     'duration', '14d', 'how long after its emit an event may be replayed by hand'),
    ('retention.fold_after', 'duration', '1d',  'when completions of finished windows are folded into bits'),
    ('wake',                 'poll|notify', 'poll', 'how idle workers are woken; notify is not for users of prepared transactions')
$$;

-- The value in force.
create or replace function outlast._setting(name text) returns text
language sql stable
as $$
  select coalesce((select s.value from outlast._setting s where s.name = _setting.name),
                  (select d.standard from outlast._settings() d where d.name = _setting.name))
$$;

-- A setting of kind duration, such as 90s, 10m, 1d 12h. In seconds: a day that the clocks are set is as long as another.
create or replace function outlast._setting_interval(name text) returns interval
language sql stable
as $$
  select make_interval(secs => extract(epoch from outlast._setting(_setting_interval.name)::interval)::float8)
$$;

-- Records an operator's action or an automatic decision, in the transaction of what it records.
create or replace function outlast._audited(action text, about text, detail jsonb default null, actor text default null) returns void
language sql volatile
as $$
  insert into outlast._audit (at, actor, action, about, detail)
  values (outlast.clock(), coalesce(_audited.actor, session_user), _audited.action, _audited.about, _audited.detail)
$$;

-- Sets these cluster settings, each in the one way in which its program writes it. Answers what changed, and writes one
-- line of the audit for each. How they fit together is for the program to judge; what no reader could use is refused here.
create or replace function outlast._apply(names text[], vals text[], actor text default null)
returns table (name text, was text, becomes text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  d record;
  rechoose boolean := false;
begin
  perform pg_advisory_xact_lock(outlast._lock_room(7310));
  for d in select w.name, w.value, k.kind, k.standard, coalesce(s.value, k.standard) as now
           from unnest(_apply.names, _apply.vals) w (name, value)
           left join outlast._settings() k on k.name = w.name
           left join outlast._setting s on s.name = w.name order by w.name loop
    if d.kind is null then
      raise exception 'apply: % is no setting', quote_nullable(left(d.name, 120)) using errcode = 'OL005';
    end if;
    if not coalesce((case when d.kind = 'duration' then d.value ~ '^\d{1,9}(ms|s|m|h|d)( \d{1,9}(ms|s|m|h|d))*$' and d.value::interval >= interval '1 s'
                else d.value = any (string_to_array(d.kind, '|')) end), false) then
      raise exception 'apply %: % is not %', d.name, quote_nullable(left(d.value, 120)), d.kind using errcode = 'OL005';
    end if;
    continue when d.value = d.now;
    if d.value = d.standard then
      delete from outlast._setting s where s.name = d.name;
    else
      insert into outlast._setting as s (name, value, changed_at) values (d.name, d.value, outlast.clock())
      on conflict (name) do update set value = excluded.value, changed_at = excluded.changed_at;
    end if;
    perform outlast._audited('setting.set', d.name, jsonb_build_object('was', d.now, 'becomes', d.value), _apply.actor);
    name := d.name;
    was := d.now;
    becomes := d.value;
    rechoose := rechoose or d.name = 'wake';
    return next;
  end loop;
  if rechoose then perform outlast._choose(); end if;
end $$;
