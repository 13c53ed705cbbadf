-- What a server has in force for this session that promises hang on; works without any right of ours.
select current_setting('server_version') as version,
       pg_is_in_recovery() as standby,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('fsync') as fsync,
       current_setting('full_page_writes') as full_page_writes,
       current_setting('autovacuum') as autovacuum,
       current_setting('max_prepared_transactions')::int as prepared,
       extract(epoch from clock_timestamp())::float8 as now,
       (select max(extract(epoch from clock_timestamp() - a.xact_start))::bigint
        from pg_stat_activity a
        where a.backend_xmin is not null and a.pid <> pg_backend_pid() and a.backend_type <> 'walsender') as oldest_seconds,
       (select a.pid from pg_stat_activity a
        where a.backend_xmin is not null and a.pid <> pg_backend_pid() and a.backend_type <> 'walsender'
        order by a.xact_start limit 1) as oldest_pid,
       (select count(*) from pg_stat_activity a where a.query is null or a.query = '<insufficient privilege>') as hidden,
       (select max(extract(epoch from clock_timestamp() - p.prepared))::bigint from pg_prepared_xacts p) as prepared_seconds,
       (select string_agg(s.slot_name, ', ' order by s.slot_name) from pg_replication_slots s
        where s.xmin is not null and not s.active) as slots
