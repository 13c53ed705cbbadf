-- The roles of the schema: missing, there, or ours, which is what this login is or inherits.
select n.role,
       case
         when r.oid is null then 'missing'
         when pg_has_role(r.oid, 'usage') then 'ours'
         else 'there'
       end as state
from unnest(array['outlast_owner', 'outlast_emitter', 'outlast_engine', 'outlast_reader']) n (role)
left join pg_catalog.pg_roles r on r.rolname = n.role
