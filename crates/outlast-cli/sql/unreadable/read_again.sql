-- Hands a message over as the event that it is after all. $1 the consumer, $2 its id, $3 the envelope in an array, $4 who.
select event_id, outcome from outlast._read_again($1, $2, $3, $4)
