-- $1 the account, $2 why, $3 who asks.
select outlast.pause_account($1, $2, $3)::text as said
