-- Another system's table, as its catalog has it, and what this login may do with it.
select format('%I.%I', n.nspname, c.relname) as "table", c.relname::text as name, c.relkind::text as kind, c.reltuples::float8 as rows,
       row_security_active(c.oid) as hidden,
       has_table_privilege(c.oid, 'select') as reads,
       has_table_privilege(c.oid, 'delete') and has_any_column_privilege(c.oid, 'update') as takes,
       (select coalesce(bool_or(has_function_privilege(p.oid, 'execute')), false)
        from pg_proc p join pg_namespace s on s.oid = p.pronamespace
        where s.nspname = 'outlast' and p.proname = 'enqueue') as enqueues,
       array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
       array(select quote_ident(a.attname) from pg_index i cross join unnest(i.indkey) with ordinality k (attnum, nth)
             join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
             where i.indrelid = c.oid and i.indisprimary order by k.nth) as key,
       array(select distinct f.conrelid::regclass::text from pg_constraint f where f.confrelid = c.oid and f.contype = 'f') as referrers
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = to_regclass($1)
