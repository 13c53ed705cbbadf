-- What is asked of one leaf of the log, a statement for each leaf. Of a statement on all of them with the leaf as an argument the
-- plan is kept, but to make a run of it ready costs seven times what this does.

-- A body that runs for its argument `slot` the statement that is written for its leaf; `%1$s` in it is the number of the leaf.
-- Found in two steps of four, because each comparison is prepared anew in every transaction.
create or replace function outlast._of_leaf(statement text) returns text
language sql immutable
as $$
  select 'begin' || string_agg(format(E'\n  %s slot < %s then\n    %s\n    end if;', case when g = 0 then 'if' else 'elsif' end, g * 4 + 4,
    (select string_agg(format(E'%s slot = %s then\n      %s', case when s = g * 4 then 'if' else 'elsif' end, s, format(statement, s)), E'\n    ' order by s)
     from generate_series(g * 4, g * 4 + 3) s)), '' order by g) || E'\n  end if;\nend'
  from generate_series(0, 3) g
$$;

-- Its events with from_id < id <= up, in the order of their ids.
do $do$
begin
  execute format('create or replace function outlast._leaf_rows(slot smallint, from_id bigint, up bigint) returns setof outlast._event
    language plpgsql stable as $$%s$$', outlast._of_leaf(
      'return query select * from outlast._event_%1$s e where e.slot = %1$s and e.id > from_id and e.id <= up order by e.id;'));
end $do$;

-- Is there one above an id?
do $do$
begin
  execute format('create or replace function outlast._leaf_above(slot smallint, above bigint) returns boolean
    language plpgsql stable as $$%s$$', outlast._of_leaf(
      'return exists (select from outlast._event_%1$s e where e.slot = %1$s and e.id > above);'));
end $do$;

-- What a batch of its next events would be: at most `n` of these types and tenants, as a tick sees them.
do $do$
begin
  execute format('create or replace function outlast._leaf_page(
    slot smallint, from_id bigint, up bigint, n int, types text[], tenants text[], base bigint, visible pg_snapshot,
    out events int, out first bigint, out last bigint, out ids_xor bigint, out bytes bigint)
    language plpgsql stable as $$%s$$', outlast._of_leaf(
      'select count(*), min(p.id), max(p.id), bit_xor(outlast._id_hash(p.event_id)), sum(p.size) into events, first, last, ids_xor, bytes
      from (
        select e.id, e.event_id, octet_length(e.payload) as size from outlast._event_%1$s e
        where e.slot = %1$s and e.id > from_id and e.id <= up and (e.id <= base or pg_visible_in_snapshot(e.xid, visible))
          and e.type = any (types) and e.tenant = any (tenants)
        order by e.id limit n) p;'));
end $do$;
