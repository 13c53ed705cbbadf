-- Begins to change the number of lanes. $1 the consumer's name, $2 the number.
select outlast.change_lanes($1, $2)::text
