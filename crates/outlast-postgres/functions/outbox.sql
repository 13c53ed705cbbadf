-- Outbox tables of other systems: which a relay reads, how each is asked, and what is wrong with it.
--
-- What speaks to a table of theirs runs with the rights of the login that works, never with the owner's: no setting makes us
-- read what that login may not. Every name is quoted here, and only here.

create or replace function outlast._outboxes(broker text) returns setof outlast._outbox
language sql stable
as $$ select o.* from outlast._outbox o where o.broker = _outboxes.broker order by o.name $$;

-- The outbox of this name; null when there is none.
create or replace function outlast._outbox_named(name text) returns outlast._outbox
language sql stable
as $$ select o from outlast._outbox o where o.name = _outbox_named.name $$;

-- Makes these the outbox tables that are read, an object by name. Answers what changed, and writes one line of the audit for
-- each. The consumer of one that is gone stays, with what it has parked, until somebody retires it. What ids are derived from is
-- fixed when a table is first named: to give the deployment a name later changes none.
create or replace function outlast._apply_outboxes(outboxes jsonb, actor text default null)
returns table (name text, was jsonb, becomes jsonb)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  d record;
  same_table boolean;
begin
  perform pg_advisory_xact_lock(outlast._lock_room(7310));
  for d in
    select coalesce(w.key, o.name) as name, w.value as becomes, o.definition as was, o.identity
    from jsonb_each(_apply_outboxes.outboxes) w full join outlast._outbox o on o.name = w.key order by 1
  loop
    continue when d.becomes = d.was;
    if d.becomes is null then
      delete from outlast._outbox o where o.name = d.name;
    else
      if d.becomes -> 'ordered' <> d.was -> 'ordered' then
        raise exception 'outbox %: whether keys are kept in order cannot be changed', d.name
          using errcode = 'OL005', hint = 'order is part of what its consumer is: give the other kind another name';
      end if;
      if d.becomes ->> 'schema' in ('outlast', 'pg_catalog', 'information_schema') then
        raise exception 'outbox %: schema % is none of an application', d.name, d.becomes ->> 'schema' using errcode = 'OL005';
      end if;
      same_table := d.becomes ->> 'schema' = d.was ->> 'schema' and d.becomes ->> 'table' = d.was ->> 'table'
        and (d.becomes ->> 'source') is not distinct from (d.was ->> 'source');
      insert into outlast._outbox as o (name, broker, ordered, definition, identity, changed_at)
      values (d.name, d.becomes ->> 'broker', (d.becomes ->> 'ordered')::boolean, d.becomes,
        case when same_table then d.identity
             else coalesce(d.becomes ->> 'source',
               format('%s/%s.%s', coalesce((select h.deployment from outlast._house h), current_database()),
                      d.becomes ->> 'schema', d.becomes ->> 'table')) end,
        outlast.clock())
      on conflict (name) do update
      set broker = excluded.broker, ordered = excluded.ordered, definition = excluded.definition, identity = excluded.identity,
          changed_at = excluded.changed_at;
    end if;
    perform outlast._audited(case when d.becomes is null then 'outbox.removed' else 'outbox.set' end, d.name,
      jsonb_strip_nulls(jsonb_build_object('was', d.was, 'becomes', d.becomes)), _apply_outboxes.actor);
    name := d.name;
    was := d.was;
    becomes := d.becomes;
    return next;
  end loop;
end $$;

-- The id of the event of a row: the same at every attempt, by every relay, after a restore. Not of the row's id alone, which
-- comes again when a sequence is reset: then every inbox would take the new event for the old one.
create or replace function outlast._outbox_event_id(identity text, row_id text, row_at bigint) returns uuid
language plpgsql immutable parallel safe
as $$
declare
  h text := encode(sha256(convert_to(length(identity) || ' ' || identity || ' ' || row_at || ' ' || row_id, 'UTF8')), 'hex');
begin
  return (substr(h, 1, 12) || '8' || substr(h, 14, 3) || translate(substr(h, 17, 1), '0123456789abcdef', '89ab89ab89ab89ab') || substr(h, 18, 15))::uuid;
end $$;

-- The table of an outbox as this login sees it, and the type of a column of it; null where there is none.
create or replace function outlast._outbox_oid(o outlast._outbox) returns oid
language sql stable
as $$ select to_regclass(format('%I.%I', (o).definition ->> 'schema', (o).definition ->> 'table'))::oid $$;

create or replace function outlast._outbox_type_of(o outlast._outbox, what text) returns text
language sql stable
as $$
  select a.atttypid::regtype::text from pg_catalog.pg_attribute a
  where a.attrelid = outlast._outbox_oid(o) and a.attname = (o).definition -> 'columns' ->> what and a.attnum > 0 and not a.attisdropped
$$;

-- How a table of theirs is asked.
create or replace function outlast._outbox_asked(outbox text) returns outlast._outbox_map
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  o outlast._outbox;
  m outlast._outbox_map;
  c jsonb;
  template text;
  payload_type text;
  mark text;
begin
  o := outlast._outbox_named(outbox);
  if o.name is null then
    raise exception 'outbox % is not there any more', outbox using errcode = 'OL011', hint = '`outlast apply` makes it: [cluster.outbox.NAME]';
  end if;
  c := o.definition -> 'columns';
  m.name := o.name;
  m.identity := o.identity;
  m.ordered := o.ordered;
  m.relation := format('%I.%I', o.definition ->> 'schema', o.definition ->> 'table');
  m.oid := outlast._outbox_oid(o);
  if m.oid is null then
    raise exception 'outbox %: there is no table %, or this login may not use its schema', o.name, m.relation using errcode = 'OL011';
  end if;
  select k.relkind into m.kind from pg_class k where k.oid = m.oid;
  m.id_type := outlast._outbox_type_of(o, 'id');
  payload_type := outlast._outbox_type_of(o, 'payload');
  if m.id_type is null or payload_type is null then
    raise exception 'outbox %: table % has no column %', o.name, m.relation, c ->> case when m.id_type is null then 'id' else 'payload' end
      using errcode = 'OL011';
  end if;
  m.at := case when c ? 'time'
    then format('coalesce(case when isfinite(t.%1$I) then (extract(epoch from t.%1$I) * 1000000)::bigint end, 0)', c ->> 'time')
    else '0::bigint' end;
  m.row := format('t.%I = $1::%s and %s = $2', c ->> 'id', m.id_type, m.at);
  m.joined := format('t.%I = r.row_id::%s and %s = r.row_at', c ->> 'id', m.id_type, m.at);
  m.payload := case payload_type when 'bytea' then format('coalesce(t.%I, '''')', c ->> 'payload')
    else format('coalesce(convert_to(t.%I::text, ''UTF8''), '''')', c ->> 'payload') end;
  m.key := case when c ? 'key' then format('t.%I', c ->> 'key') end;
  m.tenant := case when c ? 'tenant' then format('t.%I', c ->> 'tenant') end;
  m.sorted := format('t.%I', coalesce(c ->> 'order', c ->> 'id'));
  template := coalesce(o.definition ->> 'type', case when c ? 'type' then '{type}' when c ? 'topic' then '{topic}' else o.name end);
  m.needs_topic := strpos(o.definition ->> 'topic', '{topic}') > 0;
  m.content_type := o.definition ->> 'content_type';
  -- Names of types are ours: lower case, and a dash for what cannot be in one.
  m.fields := concat_ws(', ',
    format('t.%I::text as row_id', c ->> 'id'),
    m.at || ' as row_at',
    -- Go writes the year 1 where it has no time.
    case when c ? 'time' then
      format('case when t.%1$I >= ''1970-01-01'' and t.%1$I < ''9999-01-01'' then %2$s end as "time"', c ->> 'time',
        format(case outlast._outbox_type_of(o, 'time') when 'timestamp without time zone' then 't.%I at time zone ''UTC''' else 't.%I' end, c ->> 'time'))
      else 'null::timestamptz as "time"' end,
    case when c ? 'tenant' then format('coalesce(t.%I::text, '''')', c ->> 'tenant') else '''''::text' end || ' as tenant',
    case when c ? 'key' then format('t.%I::text', c ->> 'key') else 'null::text' end || ' as key',
    case when c ? 'topic' then format('t.%I::text', c ->> 'topic') else 'null::text' end || ' as topic',
    format('coalesce(nullif(left(regexp_replace(lower(replace(replace(%L, ''{topic}'', %s), ''{type}'', %s)), ''[^a-z0-9._/-]+'', ''-'', ''g''), 100), ''''), ''outbox'') as type',
      template,
      case when c ? 'topic' then format('coalesce(t.%I::text, '''')', c ->> 'topic') else '''''' end,
      case when c ? 'type' then format('coalesce(t.%I::text, '''')', c ->> 'type') else '''''' end),
    -- Headers are texts.
    case when c ? 'headers' then format('case when jsonb_typeof(t.%1$I) = ''object''
        then (select coalesce(jsonb_object_agg(h.key, coalesce(h.value, '''')), ''{}'') from jsonb_each_text(t.%1$I) h) else t.%1$I end', c ->> 'headers')
      else 'null::jsonb' end || ' as headers',
    -- What is stored packed is not unpacked to learn that it is too large.
    case payload_type when 'bytea' then format('coalesce(octet_length(t.%I), 0)::bigint as size', c ->> 'payload')
      else format('coalesce(case when pg_column_size(t.%1$I) > $5 then pg_column_size(t.%1$I) else octet_length(t.%1$I::text) end, 0)::bigint as size', c ->> 'payload') end);
  mark := c ->> 'mark';
  if mark is null then
    m.pending := 'true';
    m.done := format('delete from %s t using unnest($1::text[], $2::bigint[]) u (id, at) where t.%I = u.id::%s and %s = u.at',
      m.relation, c ->> 'id', m.id_type, m.at);
  else
    m.pending := format(case outlast._outbox_type_of(o, 'mark') when 'boolean' then 't.%I is not true' else 't.%I is null' end, mark);
    m.done := format('update %s t set %I = %s from unnest($1::text[], $2::bigint[]) u (id, at) where t.%I = u.id::%s and %s = u.at and %s',
      m.relation, mark,
      case outlast._outbox_type_of(o, 'mark') when 'boolean' then 'true' when 'timestamp without time zone' then '(outlast.clock() at time zone ''UTC'')'
        else '(outlast.clock())' end,
      c ->> 'id', m.id_type, m.at, m.pending);
  end if;
  return m;
end $$;

-- Everything that keeps this login from reading an outbox, a sentence each; none: it can be read. `rights` false: only what is
-- wrong whoever reads it.
create or replace function outlast._outbox_problems(outbox text, rights boolean default true) returns setof text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  o outlast._outbox;
  c jsonb;
  rel oid;
  relation text;
  kind "char";
  what text;
  its text;                                      -- type of a column
  may text[];
  id_at smallint;
  time_at smallint;
  nums smallint[];                               -- of the columns key, order and tenant
begin
  o := outlast._outbox_named(outbox);
  if o.name is null then
    return next format('outbox %s is not there any more', outbox);
    return;
  end if;
  c := o.definition -> 'columns';
  relation := format('%I.%I', o.definition ->> 'schema', o.definition ->> 'table');
  if rights and to_regnamespace(quote_ident(o.definition ->> 'schema')) is not null
    and not has_schema_privilege(to_regnamespace(quote_ident(o.definition ->> 'schema'))::oid, 'usage') then
    return next format('this login may not use the schema: grant usage on schema %I to %I', o.definition ->> 'schema', current_user);
    return;
  end if;
  select k.oid, k.relkind into rel, kind from pg_class k join pg_namespace n on n.oid = k.relnamespace
  where n.nspname = o.definition ->> 'schema' and k.relname = o.definition ->> 'table';
  if rel is null then
    return next format('there is no table %s', relation);
    return;
  end if;
  if kind not in ('r', 'p') then
    return next format('%s is no table', relation);
    return;
  end if;
  for what, may in values
    ('id', array['smallint', 'integer', 'bigint', 'uuid', 'text', 'character varying']),
    ('payload', array['bytea', 'json', 'jsonb', 'text', 'character varying']),
    ('time', array['timestamp with time zone', 'timestamp without time zone']),
    ('headers', array['jsonb']),
    ('mark', array['boolean', 'timestamp with time zone', 'timestamp without time zone']),
    ('topic', null), ('type', null), ('key', null), ('tenant', null), ('order', null)
  loop
    continue when not c ? what;
    select a.atttypid::regtype::text into its from pg_attribute a
    where a.attrelid = rel and a.attname = c ->> what and a.attnum > 0 and not a.attisdropped;
    if its is null then
      return next format('table %s has no column %I, which columns.%s names', relation, c ->> what, what);
    elsif its <> all (may) then
      return next format('column %I of table %s is %s; columns.%s can be %s', c ->> what, relation, its, what, array_to_string(may, ', '));
    end if;
  end loop;
  select a.attnum, a.atttypid::regtype::text into id_at, its from pg_attribute a where a.attrelid = rel and a.attname = c ->> 'id' and a.attnum > 0;
  select a.attnum into time_at from pg_attribute a where a.attrelid = rel and a.attname = c ->> 'time' and a.attnum > 0;
  if its in ('smallint', 'integer', 'bigint') and not c ? 'time' then
    return next format('column %I of table %s is %s, and columns.time names no column: such an id comes again when its sequence is reset, and an event with it would be taken for the old one',
      c ->> 'id', relation, its);
  end if;
  if id_at is not null and not exists (
    select from pg_index i where i.indrelid = rel and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
      and id_at = i.indkey[0] and i.indkey::smallint[] <@ array_remove(array[id_at, time_at], null)) then
    return next format('table %s has no unique index on %I%s: a primary key is expected', relation, c ->> 'id',
      case when c ? 'time' then format(', or on (%I, %I)', c ->> 'id', c ->> 'time') else '' end);
  end if;
  if o.ordered then
    if its in ('uuid', 'text', 'character varying') and not c ? 'order' then
      return next format('column %I of table %s is %s, which says nothing about order: name a column that rises in columns.order', c ->> 'id', relation, its);
    end if;
    nums := array(select a.attnum from unnest(array[c ->> 'key', coalesce(c ->> 'order', c ->> 'id'), c ->> 'tenant']) with ordinality u (name, n)
                  join pg_attribute a on a.attrelid = rel and a.attname = u.name and a.attnum > 0 order by u.n);
    if cardinality(nums) >= 2 and not exists (
      select from pg_index i where i.indrelid = rel and i.indisvalid and i.indexprs is null
        -- Rows that are marked stay: without a predicate each look at a key would walk over them.
        and (i.indpred is not null) = (c ? 'mark')
        and (i.indkey[0] = nums[1] and i.indkey[1] = nums[2]
             or i.indkey[0] = nums[3] and i.indkey[1] = nums[1] and i.indkey[2] = nums[2])) then
      return next format('to keep keys in order an index is needed: create index concurrently on %s (%I, %I)%s', relation, c ->> 'key',
        coalesce(c ->> 'order', c ->> 'id'), case when c ? 'mark' then format(' where the row is not marked in %I', c ->> 'mark') else '' end);
    end if;
    if c ? 'tenant' and not (select a.attnotnull from pg_attribute a where a.attrelid = rel and a.attname = c ->> 'tenant' and a.attnum > 0) then
      return next format('to keep keys in order column %I of table %s must be not null', c ->> 'tenant', relation);
    end if;
  end if;
  if not rights then return; end if;
  if not has_table_privilege(rel, 'select') then
    return next format('this login may not read it: grant select on %s to %I', relation, current_user);
  end if;
  if c ? 'mark' then
    if exists (select from pg_attribute a where a.attrelid = rel and a.attname = c ->> 'mark' and a.attnum > 0)
      and not has_column_privilege(rel, c ->> 'mark', 'update') then
      return next format('this login may not mark its rows: grant update (%I) on %s to %I', c ->> 'mark', relation, current_user);
    end if;
  elsif not has_table_privilege(rel, 'delete') then
    return next format('this login may not delete its rows: grant delete on %s to %I', relation, current_user);
  end if;
  if row_security_active(rel) then
    return next format('row level security of %s hides rows from this login: alter role %I bypassrls, or give it a policy and be its owner', relation, current_user);
  end if;
end $$;

-- What waits in an outbox, as far as this login may see: at most 100,000 are counted. `problem`: why nothing was.
create or replace function outlast._outbox_backlog(outbox text, out waiting bigint, out more boolean, out oldest timestamptz, out problem text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  m outlast._outbox_map;
begin
  m := outlast._outbox_asked(outbox);
  execute format('select count(*), min(x."time") from (select %s from %s t where %s limit 100001) x', m.fields, m.relation, m.pending)
  into waiting, oldest using null, null, null, null, 0;
  more := waiting > 100000;
  waiting := least(waiting, 100000);
exception when others then
  problem := sqlerrm;
end $$;

-- To which topics the rows of an outbox go that wait now, as its template makes them: at most 100,000 rows are looked at, and 200 topics
-- told, those of the most rows first. One row with a problem: why nothing was looked at.
create or replace function outlast._outbox_topics(outbox text) returns table (topic text, waiting bigint, problem text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  m outlast._outbox_map;
  template text := (outlast._outbox_named(outbox)).definition ->> 'topic';
begin
  m := outlast._outbox_asked(outbox);
  return query execute format('select outlast._outbox_topic($6, x.type, x.topic), count(*), null::text
      from (select %s from %s t where %s limit 100000) x where not $7 or x.topic <> '''' group by 1 order by 2 desc, 1 limit 200',
    m.fields, m.relation, m.pending)
  using null, null, null, null, 0, template, m.needs_topic;
exception when others then
  topic := null;
  waiting := null;
  problem := sqlerrm;
  return next;
end $$;

-- A topic as the relay writes it: of the event's type and of what the writer calls its topic.
create or replace function outlast._outbox_topic(template text, type text, topic text) returns text
language sql immutable parallel safe
as $$ select replace(replace(template, '{type}', type), '{topic}', coalesce(topic, '')) $$;

create or replace view outlast.outbox as
select o.name, o.broker, o.ordered, o.definition ->> 'schema' as schema_name, o.definition ->> 'table' as table_name,
       o.definition ->> 'topic' as topic, o.identity, o.definition, o.changed_at, 'outbox/' || o.name as consumer
from outlast._outbox o;
