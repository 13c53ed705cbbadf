-- The end of a consumer. $1 its name, $2 the reason.
select outlast.retire_consumer($1, $2)::text
