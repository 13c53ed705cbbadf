-- A new name for a consumer. $1 the old one, $2 the new one.
select outlast.rename_consumer($1, $2)::text
