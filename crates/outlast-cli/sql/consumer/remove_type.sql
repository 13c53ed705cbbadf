-- Takes a type from a consumer; answers how many events of it are in work (then nothing was changed). $1 its name, $2 the
-- type, $3 the reason.
select outlast.remove_type($1, $2, $3) as busy
