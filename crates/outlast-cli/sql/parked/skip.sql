-- Does without an event, and hands its key on. $1 the consumer's name, $2 the event, $3 why, $4 who asks.
select outcome, behind, next from outlast.skip($1, $2, $3, $4)
