-- Cluster settings: the one list of their names, kinds and defaults, and how they are read. `outlast apply` writes them.

create or replace function outlast._settings() returns table (name text, kind text, standard text, what text)
language sql immutable parallel safe
as $$
  values
    ('retention.log',        'duration', '3d',  'how long events are kept after their last consumer'),
    ('retention.inbox',      'duration', '30d', 'how long completions are remembered'),
    ('retention.dedup',      'duration', '30d', 'how long a deduplication key answers; after that it is expired'),
    ('retention.replay',     'duration', '14d', 'how long after its emit an event may be replayed by hand'),
    ('retention.fold_after', 'duration', '1d',  'when completions of finished windows are folded into bits'),
    ('wake',                 'poll|notify', 'poll', 'how idle workers are woken')
$$;

-- The value in force.
create or replace function outlast._setting(name text) returns text
language sql stable
as $$
  select coalesce((select s.value from outlast._setting s where s.name = _setting.name),
                  (select d.standard from outlast._settings() d where d.name = _setting.name))
$$;

-- A setting of kind duration, such as 90s, 10m, 12h, 3d.
create or replace function outlast._setting_interval(name text) returns interval
language sql stable
as $$
  select make_interval(secs => left(v, -1)::numeric::float8 *
           case right(v, 1) when 's' then 1 when 'm' then 60 when 'h' then 3600 when 'd' then 86400 end)
  from outlast._setting(_setting_interval.name) v
$$;

-- Records an operator's action or an automatic decision, in the transaction of what it records.
create or replace function outlast._audited(action text, about text, detail jsonb default null, actor text default null) returns void
language sql volatile
as $$
  insert into outlast._audit (at, actor, action, about, detail)
  values (outlast.clock(), coalesce(_audited.actor, session_user), _audited.action, _audited.about, _audited.detail)
$$;
