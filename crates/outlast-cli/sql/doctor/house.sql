-- What an operator has to know of the installation itself.
select h.deployment,
       h.stopped,
       h.held,
       (select string_agg(c.relname, ', ' order by c.relname) from pg_class c
        where c.relnamespace = 'outlast'::regnamespace and c.reloptions::text ~ 'autovacuum_enabled=(false|off|no|0)') as unvacuumed,
       (select string_agg(p.proname, ', ' order by p.proname) from pg_proc p
        where p.pronamespace = 'outlast'::regnamespace and p.prosecdef
          and not coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']) as unfixed,
       (select seqcache from pg_sequence where seqrelid = 'outlast._event_id'::regclass) as seqcache,
       (select count(*) from outlast.incident) as incidents
from outlast._house h
