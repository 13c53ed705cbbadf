-- Does without a message. $1 the consumer, $2 its id, $3 why, $4 who.
select outlast.discard($1, $2, $3, $4) as gone
